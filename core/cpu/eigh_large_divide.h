#pragma once

// Eigendecomposition of a tridiagonal matrix by divide and conquer. The matrix is torn into parts
// small enough for QL, and the parts are merged in pairs. A merge is a rank-1 update of a diagonal
// matrix (formulas/secular.h, shared by both backends) and a matrix product. Vectors are rows
// here.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "eigh_large_kernels.h"
#include "keel/executor.h"
#include "kernels.h"
#include "scratch.h"
#include "secular_merge.h"

namespace keel::cpu {

template <typename T>
class Divide {
 public:
  /// The eigenvalues replace the diagonal, unsorted. Row j of `vectors` belongs to value j.
  /// `update` and `gathered` are scratch memory as large as `vectors`.
  Divide(std::int64_t n, T* diagonal, T* off_diagonal, T* vectors, T* update, T* gathered,
         int max_sweeps, const Executor& executor)
      : n_(n),
        stride_(row_stride<T>(n)),
        value_(diagonal),
        link_(off_diagonal),
        vectors_(vectors),
        update_(update),
        gathered_(gathered),
        max_sweeps_(max_sweeps),
        executor_(executor) {}

  /// Returns false if QL gave up.
  bool run() {
    std::int64_t parts = 1;
    while ((n_ + parts - 1) / parts > kLeaf) parts *= 2;
    const auto bound = [&](std::int64_t p) { return n_ * p / parts; };
    for (std::int64_t p = 1; p < parts; ++p) {
      const T torn = std::abs(link_[bound(p) - 1]);
      value_[bound(p) - 1] -= torn;
      value_[bound(p)] -= torn;
    }
    std::vector<char> solved(static_cast<std::size_t>(parts));
    executor_(parts, [&](std::int64_t p) {
      solved[std::size_t(p)] = solve_leaf(bound(p), bound(p + 1) - bound(p));
    });
    if (std::find(solved.begin(), solved.end(), 0) != solved.end()) return false;
    for (std::int64_t half = 1; half < parts; half *= 2) {
      const auto merge = [&](std::int64_t pair, const Executor& steps) {
        Merge(*this, bound(2 * pair * half), bound((2 * pair + 1) * half),
              bound((2 * pair + 2) * half))
            .run(steps);
      };
      const std::int64_t pairs = parts / half / 2;
      if (n_ / pairs <= kMergeAlone)
        executor_(pairs, [&](std::int64_t pair) { merge(pair, serial()); });
      else
        for (std::int64_t pair = 0; pair < pairs; ++pair) merge(pair, executor_);
    }
    return true;
  }

 private:
  static constexpr std::int64_t kLeaf = 32;
  static constexpr std::int64_t kMergeAlone = 128;  // up to this size one thread does a merge

  bool solve_leaf(std::int64_t first, std::int64_t count) {
    constexpr std::int64_t kRows = kBlockRows<T>;
    const std::int64_t blocks = (count + kRows - 1) / kRows;
    Scratch<T> turned(blocks * count * kRows), rotations(2 * kLeaf * kLeaf), links(count);
    Scratch<typename QlProgress<T>::Sweep> sweeps(2 * kLeaf + 1);
    std::fill_n(turned.data(), blocks * count * kRows, T(0));
    const auto entry = [&](std::int64_t row, std::int64_t column) -> T& {
      return turned[((row / kRows) * count + column) * kRows + row % kRows];
    };
    for (std::int64_t i = 0; i < count; ++i) entry(i, i) = 1;
    std::copy_n(link_ + first, count - 1, links.data());
    links[count - 1] = 0;
    QlProgress<T> progress{.n = count,
                           .diagonal = value_ + first,
                           .off_diagonal = links,
                           .max_sweeps = max_sweeps_,
                           .blocks = turned,
                           .block_count = blocks,
                           .cosine = rotations,
                           .sine = rotations + kLeaf * kLeaf,
                           .sweeps = sweeps,
                           .rotation_capacity = kLeaf * kLeaf,
                           .sweep_capacity = 2 * kLeaf + 1};
    while (!progress.finished) kernels<T>().iterate(progress);
    for (std::int64_t j = 0; j < count; ++j) {
      T* const to = vectors_ + (first + j) * stride_;
      std::fill_n(to, stride_, T(0));
      for (std::int64_t i = 0; i < count; ++i) to[first + i] = entry(i, j);
    }
    return !progress.unconverged;
  }

  /// Merges the parts [first, seam) and [seam, end).
  class Merge : SecularMerge<T> {
    using Base = SecularMerge<T>;
    using Base::first_, Base::seam_, Base::count_, Base::left_, Base::right_, Base::side_,
        Base::alive_, Base::dropped_, Base::pole_, Base::weight_, Base::source_,
        Base::dropped_pole_, Base::dropped_source_, Base::origin_, Base::offset_, Base::refined_,
        Base::left_only_, Base::right_only_, Base::grouped_pole_, Base::grouped_refined_,
        Base::grouped_source_, Base::kLeft, Base::kRight, Base::kBoth;
    using typename Base::Side;

   public:
    Merge(const Divide& all, std::int64_t first, std::int64_t seam, std::int64_t end)
        : Base(first, seam, end), all_(all) {}

    void run(const Executor& executor) {
      prepare();
      this->find_roots(rho_, executor);
      this->group();
      fill_update(executor);
      this->multiply(row(0), update(0), all_.stride_, packed_left_, packed_right_, set_aside_,
                     executor);
      for (int i = 0; i < alive_; ++i)
        all_.value_[first_ + i] = this->pole_of(i) + offset_[std::size_t(i)];
      for (int i = 0; i < dropped_; ++i)
        all_.value_[first_ + alive_ + i] = dropped_pole_[std::size_t(i)];
    }

   private:
    T* row(int j) const { return all_.vectors_ + (first_ + j) * all_.stride_; }

    /// Sorts the poles and deflates: sets aside those that the update does not move, or that a
    /// rotation can remove from it.
    void prepare() {
      constexpr T epsilon = std::numeric_limits<T>::epsilon();
      const T link = all_.link_[seam_ - 1];
      const T* const value = all_.value_ + first_;
      rho_ = 2 * std::abs(link);
      T size = rho_;
      for (int j = 0; j < count_; ++j) size = std::max(size, std::abs(value[j]));
      // The whole matrix has unit size. Below this bound a part of it is negligible, and squares
      // would underflow.
      const T tolerance = std::max(2 * epsilon * size, epsilon * epsilon);
      std::vector<int> order(source_.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int a, int b) { return value[a] < value[b]; });
      for (const int j : order) {
        const bool right = j >= left_;
        side_[std::size_t(j)] = right ? kRight : kLeft;
        T z = right ? row(j)[seam_] : row(j)[seam_ - 1];
        z *= right && link < 0 ? T(-0.70710678118654752) : T(0.70710678118654752);
        if (rho_ * std::abs(z) > tolerance) {
          pole_[std::size_t(alive_)] = value[j];
          weight_[std::size_t(alive_)] = z;
          source_[std::size_t(alive_++)] = j;
        } else {
          dropped_pole_[std::size_t(dropped_)] = value[j];
          dropped_source_[std::size_t(dropped_++)] = j;
        }
      }
      if (alive_ > 1) {
        std::vector<SecularRotation<T>> rotation(static_cast<std::size_t>(alive_));
        int rotations = 0;
        drop_close_poles(tolerance, alive_, pole_.data(), weight_.data(), source_.data(), dropped_,
                         dropped_pole_.data(), dropped_source_.data(), rotations, rotation.data());
        for (int t = 0; t < rotations; ++t) rotate_vectors(rotation[std::size_t(t)]);
      }
      this->pad_poles();
    }

    void rotate_vectors(const SecularRotation<T>& rotation) {
      large_kernels<T>().turn(count_, rotation.c, rotation.s, row(rotation.dropped) + first_,
                              row(rotation.kept) + first_);
      this->mark_rotated(rotation);
    }

    /// Row i of the update holds the coefficients of new vector i in the old ones. The old vectors
    /// are packed, and the deflated ones are copied aside.
    void fill_update(const Executor& executor) {
      const LargeKernels<T>& kernel = large_kernels<T>();
      const int rows = 32, by_rows = (alive_ + rows - 1) / rows;
      const int depth = int(kernel.depth);
      const int left_rows = alive_ - right_only_, right_rows = alive_ - left_only_;
      const int by_left = (left_rows + depth - 1) / depth,
                by_right = (right_rows + depth - 1) / depth;
      packed_left_ = all_.gathered_ + first_ * all_.stride_;
      packed_right_ = packed_left_ + kernel.packed_size(left_rows, left_);
      set_aside_ = packed_right_ + kernel.packed_size(right_rows, right_);
      executor(by_rows + by_left + by_right + 1, [&](std::int64_t p) {
        if (p < by_rows) {
          for (int i = int(p) * rows; i < std::min(alive_, int(p + 1) * rows); ++i)
            kernel.update_row(alive_, grouped_pole_.data(), grouped_refined_.data(),
                              this->pole_of(i), offset_[std::size_t(i)], update(i));
          return;
        }
        p -= by_rows;
        if (p < by_left + by_right) {
          const bool right = p >= by_left;
          const int start = int(right ? p - by_left : p) * depth;
          const int deep = std::min(depth, (right ? right_rows : left_rows) - start);
          const std::int64_t columns = right ? right_ : left_;
          kernel.pack(deep, columns, row(0) + (right ? seam_ : first_), all_.stride_,
                      grouped_source_.data() + start + (right ? left_only_ : 0),
                      (right ? packed_right_ : packed_left_) + kernel.packed_size(start, columns));
          return;
        }
        for (int i = 0; i < dropped_; ++i)
          std::copy_n(row(dropped_source_[std::size_t(i)]) + first_, count_,
                      set_aside_ + std::int64_t(i) * count_);
      });
    }

    T* update(int i) const { return all_.update_ + (first_ + i) * all_.stride_; }

    const Divide& all_;
    T rho_ = 0;  // the update is rho z z^T
    T *packed_left_ = nullptr, *packed_right_ = nullptr, *set_aside_ = nullptr;
  };

  std::int64_t n_, stride_;
  T *value_, *link_, *vectors_, *update_, *gathered_;
  int max_sweeps_;
  const Executor& executor_;
};

}  // namespace keel::cpu
