#pragma once

// Matrices that are block diagonal up to a permutation, with exact zeros outside the blocks. A dead
// channel is a block of one row. Each block ("part") is solved alone and at its own scale. Solved
// as one matrix, small parts would get rounding errors of the size of the large ones.

#include <algorithm>
#include <complex>
#include <cstdint>
#include <numeric>
#include <vector>

#include "formulas/order.h"
#include "keel/eigh.h"

namespace keel::cpu {

/// The parts of one matrix after another, in memory that is used again.
template <typename T>
class Parts {
  using Real = RealOf<T>;

 public:
  /// A quick test whether there can be several parts. Most matrices fail it by their last row.
  static bool may_exist(const T* matrix, std::int64_t n, std::int64_t row_stride) {
    const T* const last = matrix + (n - 1) * row_stride;
    return n > 1 && std::find(last, last + n - 1, T(0)) != last + n - 1;
  }

  /// Finds the rows of each part in ascending order; parts in the order of their first rows.
  /// Returns how many there are.
  std::int64_t find(const T* matrix, std::int64_t n, std::int64_t row_stride) {
    matrix_ = matrix;
    n_ = n;
    row_stride_ = row_stride;
    parent_.resize(std::size_t(n));
    std::iota(parent_.begin(), parent_.end(), 0);
    std::int64_t count = n;
    for (std::int64_t i = n - 1; i > 0 && count > 1; --i)
      for (std::int64_t j = 0; j < i && count > 1; ++j) {
        if (matrix[i * row_stride + j] == T(0)) continue;
        const std::int64_t a = root(i), b = root(j);
        if (a == b) continue;
        parent_[std::size_t(std::max(a, b))] = std::min(a, b);  // so a root is its part's first row
        --count;
      }
    if (count == 1) return 1;
    number_.resize(std::size_t(n));
    begin_.assign(std::size_t(count + 2), 0);
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto first = std::size_t(root(i));
      number_[std::size_t(i)] = std::int64_t(first) == i ? found++ : number_[first];
      ++begin_[std::size_t(number_[std::size_t(i)] + 2)];
    }
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    rows_.resize(std::size_t(n));
    for (std::int64_t i = 0; i < n; ++i)
      rows_[std::size_t(begin_[std::size_t(number_[std::size_t(i)] + 1)]++)] = i;
    return count;
  }

  /// Solves each part by solve(m, matrix, values, vectors) and sorts the results. A part of one row
  /// has its diagonal entry as the value and a unit vector. Without `vectors`, the values alone.
  /// Writes nothing if the matrix is not finite or a part did not converge.
  template <typename Solve>
  EighStatus solve(EighOrder order, Real* values, T* vectors, std::int64_t vector_stride,
                   const Solve& solve_part) {
    pairs_.clear();
    part_vectors_.clear();
    for (std::size_t p = 0; p + 2 < begin_.size(); ++p) {
      const std::int64_t begin = begin_[p], m = begin_[p + 1] - begin;
      const EighStatus status = take_part(begin, m, vectors != nullptr, solve_part);
      if (status != EighStatus::converged) return status;
      for (std::int64_t j = 0; j < m; ++j) {
        pairs_.push_back({values_[std::size_t(j)], begin, m, std::int64_t(pairs_.size()),
                          std::int64_t(part_vectors_.size())});
        for (std::int64_t i = 0; vectors != nullptr && i < m; ++i)
          part_vectors_.push_back(columns_[std::size_t(i * m + j)]);
      }
    }
    std::sort(pairs_.begin(), pairs_.end(), [](const Pair& x, const Pair& y) {
      return x.value > y.value || (x.value == y.value && x.place < y.place);
    });
    for (std::int64_t i = 0; vectors != nullptr && i < n_; ++i)
      std::fill_n(vectors + i * vector_stride, n_, T(0));
    for (std::int64_t c = 0; c < n_; ++c) {
      const Pair& pair = pairs_[std::size_t(place_in(order, n_, c))];
      values[c] = pair.value;
      for (std::int64_t i = 0; vectors != nullptr && i < pair.size; ++i)
        vectors[rows_[std::size_t(pair.begin + i)] * vector_stride + c] =
            part_vectors_[std::size_t(pair.vector + i)];
    }
    return EighStatus::converged;
  }

 private:
  struct Pair {
    Real value;
    std::int64_t begin, size;  ///< of its part in rows_
    std::int64_t place;        ///< among pairs before they are sorted
    std::int64_t vector;       ///< the offset of its column in part_vectors_
  };

  std::int64_t root(std::int64_t i) {
    while (parent_[std::size_t(i)] != i)
      i = parent_[std::size_t(i)] = parent_[std::size_t(parent_[std::size_t(i)])];
    return i;
  }

  /// Fills values_ and columns_.
  template <typename Solve>
  EighStatus take_part(std::int64_t begin, std::int64_t m, bool wanted, const Solve& solve_part) {
    const std::int64_t* const rows = rows_.data() + begin;
    const Real corner = std::real(matrix_[rows[0] * row_stride_ + rows[0]]);
    values_.assign(std::size_t(m), corner);
    if (wanted) columns_.assign(std::size_t(m * m), T(1));
    Real not_finite = 0;  // NaN if an entry is not finite
    if (m == 1) {
      not_finite = corner * 0;
    } else {
      part_.assign(std::size_t(m * m), T(0));
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j <= i; ++j) {
          const T x = part_[std::size_t(i * m + j)] = matrix_[rows[i] * row_stride_ + rows[j]];
          not_finite += std::real(x) * 0 + (i == j ? Real(0) : std::imag(x) * 0);
        }
    }
    if (not_finite != 0) return EighStatus::not_finite;
    return m == 1 ? EighStatus::converged
                  : solve_part(m, part_.data(), values_.data(), wanted ? columns_.data() : nullptr);
  }

  const T* matrix_ = nullptr;
  std::int64_t n_ = 0, row_stride_ = 0;
  std::vector<std::int64_t> parent_;  ///< a forest: a tree for every part found so far
  std::vector<std::int64_t> number_;  ///< of each row's part
  std::vector<std::int64_t> rows_;    ///< part by part
  std::vector<std::int64_t> begin_;   ///< of each part in rows_
  std::vector<Pair> pairs_;
  std::vector<T> part_, columns_, part_vectors_;  ///< part_vectors_: of all parts, column by column
  std::vector<Real> values_;
};

}  // namespace keel::cpu
