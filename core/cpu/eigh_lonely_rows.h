#pragma once

// Rows without a neighbour: a dead channel's covariances are all exactly zero. Their eigenvectors are unit
// vectors and their eigenvalues the diagonal itself, so they are kept out of the solver, which would mix
// them into their neighbours and return them with rounding errors.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "keel/eigh.h"

namespace keel::cpu {

/// Whether there can be such rows at all: most matrices say no with their last row.
template <typename T>
bool may_have_lonely_rows(const T* matrix, std::int64_t n, std::int64_t row_stride) {
  const T* const last = matrix + (n - 1) * row_stride;
  return n > 1 && std::find(last, last + n - 1, T(0)) != last + n - 1;
}

/// The rows with an entry other than zero beside the diagonal.
template <typename T>
std::vector<std::int64_t> busy_rows(const T* matrix, std::int64_t n, std::int64_t row_stride) {
  std::vector<char> busy(std::size_t(n), 0);
  std::int64_t count = 0;
  const auto mark = [&](std::int64_t i) {
    count += busy[std::size_t(i)] == 0;
    busy[std::size_t(i)] = 1;
  };
  for (std::int64_t i = n - 1; i > 0 && count < n; --i)
    for (std::int64_t j = 0; j < i; ++j)
      if (matrix[i * row_stride + j] != 0) {
        mark(i);
        mark(j);
      }
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < n; ++i)
    if (busy[std::size_t(i)] != 0) rows.push_back(i);
  return rows;
}

/// Solves the `busy` rows by solve(matrix, values, vectors) of that size, and puts the others back in
/// their places of the descending order.
template <typename T, typename Solve>
EighStatus solve_without_lonely_rows(const T* matrix, std::int64_t n, std::int64_t row_stride,
                                     const std::vector<std::int64_t>& busy, T* values, T* vectors,
                                     std::int64_t vector_stride, const Solve& solve) {
  const auto m = std::int64_t(busy.size());
  std::vector<T> part(std::size_t(m * m)), part_values(static_cast<std::size_t>(m)),
      part_vectors(std::size_t(m * m));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j <= i; ++j)
      part[std::size_t(i * m + j)] =
          matrix[busy[std::size_t(i)] * row_stride + busy[std::size_t(j)]];
  const EighStatus status = m == 0 ? EighStatus::converged
                                   : solve(m, part.data(), part_values.data(), part_vectors.data());

  struct Pair {
    T value;
    std::int64_t row, column;  ///< a unit vector's row, or a column of the part's vectors
  };
  std::vector<Pair> pairs;
  for (std::int64_t j = 0; j < m; ++j) pairs.push_back({part_values[std::size_t(j)], -1, j});
  for (std::int64_t i = 0; i < n; ++i)
    if (!std::binary_search(busy.begin(), busy.end(), i))
      pairs.push_back({matrix[i * row_stride + i], i, -1});
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& x, const Pair& y) { return x.value > y.value; });
  for (std::int64_t i = 0; i < n; ++i) std::fill_n(vectors + i * vector_stride, n, T(0));
  for (std::int64_t c = 0; c < n; ++c) {
    const Pair& pair = pairs[std::size_t(c)];
    values[c] = pair.value;
    if (pair.row >= 0) {
      vectors[pair.row * vector_stride + c] = 1;
      continue;
    }
    for (std::int64_t i = 0; i < m; ++i)
      vectors[busy[std::size_t(i)] * vector_stride + c] =
          part_vectors[std::size_t(i * m + pair.column)];
  }
  return status;
}

}  // namespace keel::cpu
