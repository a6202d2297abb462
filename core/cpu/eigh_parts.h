#pragma once

// Matrices that are block diagonal up to a permutation, with exact zeros outside the blocks. A dead
// channel is a block of one row. Each block ("part") is solved alone and at its own scale. Solved
// as one matrix, small parts would get rounding errors of the size of the large ones.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "formulas/order.h"
#include "keel/eigh.h"

namespace keel::cpu {

using Rows = std::vector<std::int64_t>;

/// A quick test whether there can be several parts. Most matrices fail it by their last row.
template <typename T>
bool may_have_parts(const T* matrix, std::int64_t n, std::int64_t row_stride) {
  const T* const last = matrix + (n - 1) * row_stride;
  return n > 1 && std::find(last, last + n - 1, T(0)) != last + n - 1;
}

/// The rows of each part in ascending order; parts in the order of their first rows.
template <typename T>
std::vector<Rows> parts_of(const T* matrix, std::int64_t n, std::int64_t row_stride) {
  Rows parent(static_cast<std::size_t>(n));  // a forest: a tree for every part found so far
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](std::int64_t i) {
    while (parent[std::size_t(i)] != i)
      i = parent[std::size_t(i)] = parent[std::size_t(parent[std::size_t(i)])];
    return i;
  };
  std::int64_t count = n;
  for (std::int64_t i = n - 1; i > 0 && count > 1; --i)
    for (std::int64_t j = 0; j < i && count > 1; ++j) {
      if (matrix[i * row_stride + j] == T(0)) continue;
      const std::int64_t a = root(i), b = root(j);
      if (a == b) continue;
      parent[std::size_t(std::max(a, b))] = std::min(a, b);  // so a root is its part's first row
      --count;
    }
  std::vector<Rows> parts;
  std::vector<std::size_t> number(static_cast<std::size_t>(n));  // of the part a root stands for
  for (std::int64_t i = 0; i < n; ++i) {
    const auto first = std::size_t(root(i));
    if (std::int64_t(first) == i) {
      number[first] = parts.size();
      parts.emplace_back();
    }
    parts[number[first]].push_back(i);
  }
  return parts;
}

/// Solves each part by solve(m, matrix, values, vectors) and sorts the results. A part of one row
/// has its diagonal entry as the value and a unit vector. Without `vectors`, the values alone.
template <typename T, typename Solve>
EighStatus solve_by_parts(const T* matrix, std::int64_t n, std::int64_t row_stride,
                          const std::vector<Rows>& parts, EighOrder order, RealOf<T>* values,
                          T* vectors, std::int64_t vector_stride, const Solve& solve) {
  struct Pair {
    RealOf<T> value;
    const Rows* rows;
    std::size_t vector;  ///< the offset of its column in part_vectors
  };
  std::vector<Pair> pairs;
  std::vector<T> part_vectors;  // of all parts, column by column
  std::vector<T> part, columns;
  std::vector<RealOf<T>> part_values;
  for (const Rows& rows : parts) {
    const auto m = std::int64_t(rows.size());
    const auto size = std::size_t(m * m);
    part.assign(size, T(0));
    part_values.assign(std::size_t(m), std::real(matrix[rows[0] * row_stride + rows[0]]));
    if (vectors != nullptr) columns.assign(size, T(1));
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        part[std::size_t(i * m + j)] =
            matrix[rows[std::size_t(i)] * row_stride + rows[std::size_t(j)]];
    if (m > 1) {
      const EighStatus status =
          solve(m, part.data(), part_values.data(), vectors == nullptr ? nullptr : columns.data());
      if (status != EighStatus::converged) return status;
    }
    for (std::int64_t j = 0; j < m; ++j) {
      pairs.push_back({part_values[std::size_t(j)], &rows, part_vectors.size()});
      for (std::int64_t i = 0; vectors != nullptr && i < m; ++i)
        part_vectors.push_back(columns[std::size_t(i * m + j)]);
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& x, const Pair& y) { return x.value > y.value; });
  for (std::int64_t i = 0; vectors != nullptr && i < n; ++i)
    std::fill_n(vectors + i * vector_stride, n, T(0));
  for (std::int64_t c = 0; c < n; ++c) {
    const Pair& pair = pairs[std::size_t(place_in(order, n, c))];
    values[c] = pair.value;
    for (std::size_t i = 0; vectors != nullptr && i < pair.rows->size(); ++i)
      vectors[(*pair.rows)[i] * vector_stride + c] = part_vectors[pair.vector + i];
  }
  return EighStatus::converged;
}

}  // namespace keel::cpu
