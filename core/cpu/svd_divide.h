#pragma once

// Singular values and vectors of a square upper bidiagonal matrix by divide and conquer (Gu and Eisenstat 1995). A part
// is a range of columns and the rows that lie in them: one fewer than columns, so it has a null vector on the right, but
// for the last part, which is square. The row between two parts joins them: with the parts' vectors as bases the matrix
// is a diagonal one below a full row z, whose squares of values are the eigenvalues of diag(d^2) + z z^T. Their roots
// and the right vectors are those of eigh (formulas/secular.h). Since poles are squares of numbers, relative errors of
// the poles are those of the numbers, so small values are as accurate as large ones. The left vectors follow from the
// right ones, column by column. Vectors are rows here.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "eigh_large_kernels.h"
#include "keel/executor.h"
#include "scratch.h"
#include "secular_merge.h"

namespace keel::cpu {

template <typename T>
class DivideBidiagonal {
 public:
  /// The values replace the diagonal, unsorted. Row j of `left` and `right`, with rows row_stride<T>(n) apart, belongs to
  /// value j.
  DivideBidiagonal(std::int64_t n, T* diagonal, const T* above, T* left, T* right,
                   const Executor& executor)
      : n_(n),
        stride_(row_stride<T>(n)),
        value_(diagonal),
        above_(above),
        of_{left, right},
        updates_(2 * n * stride_),
        gathered_(n * stride_),
        executor_(executor) {}

  void run() {
    std::fill_n(of_[0], n_ * stride_, T(0));
    std::fill_n(of_[1], n_ * stride_, T(0));
    const std::vector<T> diagonal(value_, value_ + n_);
    for (std::int64_t j = 0; j < n_; ++j)
      top_ = std::max({top_, std::abs(value_[j]), j + 1 < n_ ? std::abs(above_[j]) : T(0)});
    for (std::int64_t j = 0; j < n_; ++j) {
      of_[1][j * stride_ + j] = 1;
      value_[j] = 0;
    }
    value_[n_ - 1] = std::abs(diagonal[std::size_t(n_ - 1)]);
    of_[0][(n_ - 1) * stride_ + n_ - 1] = std::copysign(T(1), diagonal[std::size_t(n_ - 1)]);
    std::int64_t parts = 1;
    while (parts < n_) parts *= 2;
    const auto bound = [&](std::int64_t p) { return n_ * p / parts; };
    for (std::int64_t half = 1; half < parts; half *= 2) {
      const auto merge = [&](std::int64_t pair, const Executor& steps) {
        const std::int64_t first = bound(2 * pair * half), seam = bound((2 * pair + 1) * half),
                           end = bound((2 * pair + 2) * half);
        if (first < seam && seam < end)
          Merge(*this, first, seam, end, diagonal[std::size_t(seam - 1)], above_[seam - 1])
              .run(steps);
      };
      const std::int64_t pairs = parts / half / 2;
      if (n_ / pairs <= kMergeAlone)
        executor_((pairs + kMergesAPiece - 1) / kMergesAPiece, [&](std::int64_t piece) {
          for (std::int64_t pair = piece * kMergesAPiece;
               pair < std::min(pairs, (piece + 1) * kMergesAPiece); ++pair)
            merge(pair, serial());
        });
      else
        for (std::int64_t pair = 0; pair < pairs; ++pair) merge(pair, executor_);
    }
  }

 private:
  static constexpr std::int64_t kMergeAlone = 128;  // up to this size one thread does a merge
  static constexpr std::int64_t kMergesAPiece = 4;

  /// Merges the parts [first, seam) and [seam, end), which the row (alpha, beta) joins.
  class Merge : SecularMerge<T> {
    using Base = SecularMerge<T>;
    using Base::first_, Base::seam_, Base::count_, Base::left_, Base::right_, Base::side_,
        Base::alive_, Base::dropped_, Base::pole_, Base::weight_, Base::source_,
        Base::dropped_pole_, Base::dropped_source_, Base::origin_, Base::offset_, Base::refined_,
        Base::left_only_, Base::right_only_, Base::grouped_pole_, Base::grouped_refined_,
        Base::grouped_source_, Base::kLeft, Base::kRight, Base::kBoth;
    using typename Base::Side;

   public:
    Merge(const DivideBidiagonal& all, std::int64_t first, std::int64_t seam, std::int64_t end,
          T alpha, T beta)
        : Base(first, seam, end),
          all_(all),
          alpha_(alpha),
          beta_(beta),
          is_last_(end == all.n_),
          size_(pole_.size()) {}

    void run(const Executor& executor) {
      prepare();
      this->find_roots(T(1), executor);
      const std::vector<int> order = this->group();
      grouped_size_.assign(pole_.size(), T(0));
      for (std::size_t q = 0; q < order.size(); ++q)
        grouped_size_[q] = size_[std::size_t(order[q])];
      fill_updates(executor);
      for (const int side : {0, 1}) multiply_side(side, executor);
      T* const value = all_.value_ + first_;
      for (int i = 0; i < alive_; ++i) {
        value[i] = std::sqrt(this->pole_of(i) + offset_[std::size_t(i)]);
        row(0, i)[seam_ - 1] = joint_[std::size_t(i)];
      }
      std::copy_n(dropped_pole_.begin(), dropped_, value + alive_);
    }

   private:
    /// Vector j of the left (0) or the right (1) side of the matrix.
    T* row(int side, int j) const { return all_.of_[side] + (first_ + j) * all_.stride_; }
    T* update(int side, int i) const {
      return all_.updates_ + (side * all_.n_ + first_ + i) * all_.stride_;
    }

    /// Sorts the values and deflates: sets aside those that the joining row does not move, or that rotations can remove
    /// from it. The null vectors come first: what both of them have in common with the row, one keeps.
    void prepare() {
      constexpr T kEpsilon = std::numeric_limits<T>::epsilon();
      const T* const value = all_.value_ + first_;
      T size = std::max(std::abs(alpha_), std::abs(beta_));
      for (int j = 0; j < count_; ++j) size = std::max(size, value[j]);
      // What is far below rounding of the whole matrix is negligible everywhere.
      const T tolerance = kEpsilon * std::max(4 * size, all_.top_ / 16);
      const auto share = [&](int j) {
        return j < left_ ? alpha_ * row(1, j)[seam_ - 1] : beta_ * row(1, j)[seam_];
      };
      std::vector<int> order;
      const int null = int(left_) - 1, other = count_ - 1;
      for (int j = 0; j < count_; ++j) {
        side_[std::size_t(j)] = j < left_ ? kLeft : kRight;
        if (j != null && (is_last_ || j != other)) order.push_back(j);
      }
      T kept = share(null);
      if (!is_last_) {
        const T from = share(other), length = std::sqrt(kept * kept + from * from);
        if (std::max(std::abs(kept), std::abs(from)) > tolerance) {
          large_kernels<T>().turn(count_, kept / length, from / length, row(1, null) + first_,
                                  row(1, other) + first_);
          side_[std::size_t(null)] = side_[std::size_t(other)] = kBoth;
        }
        kept = length;
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](int a, int b) { return value[a] < value[b]; });
      size_[0] = 0;
      weight_[0] = std::abs(kept) > tolerance ? kept : tolerance;
      source_[0] = null;
      T *const sizes = size_.data() + 1, *const weights = weight_.data() + 1;
      int *const sources = source_.data() + 1, some = 0;
      for (const int j : order) {
        const T z = share(j);
        if (std::abs(z) > tolerance) {
          sizes[some] = value[j];
          weights[some] = z;
          sources[some++] = j;
        } else {
          dropped_pole_[std::size_t(dropped_)] = value[j];
          dropped_source_[std::size_t(dropped_++)] = j;
        }
      }
      if (some > 1) {
        std::vector<SecularRotation<T>> rotation(static_cast<std::size_t>(some));
        int rotations = 0;
        drop_close_poles(tolerance, some, sizes, weights, sources, dropped_, dropped_pole_.data(),
                         dropped_source_.data(), rotations, rotation.data());
        for (int t = 0; t < rotations; ++t) rotate_vectors(rotation[std::size_t(t)]);
      }
      alive_ = 1 + some;
      if (some > 0) size_[1] = std::max(size_[1], tolerance / 2);  // apart from the null vector's
      if (!is_last_) {
        dropped_pole_[std::size_t(dropped_)] = 0;
        dropped_source_[std::size_t(dropped_++)] = other;
      }
      for (int i = 0; i < alive_; ++i)
        pole_[std::size_t(i)] = size_[std::size_t(i)] * size_[std::size_t(i)];
      this->pad_poles();
    }

    void rotate_vectors(const SecularRotation<T>& rotation) {
      for (const int side : {0, 1})
        large_kernels<T>().turn(count_, rotation.c, rotation.s,
                                row(side, rotation.dropped) + first_,
                                row(side, rotation.kept) + first_);
      this->mark_rotated(rotation);
    }

    /// Rows i of the updates hold the coefficients of new vector i in the old ones.
    void fill_updates(const Executor& executor) {
      joint_.resize(std::size_t(alive_));
      this->in_pieces(executor, alive_, 16, 64, [&](int first, int end) {
        for (int i = first; i < end; ++i)
          joint_[std::size_t(i)] = large_kernels<T>().update_both(
              alive_, grouped_pole_.data(), grouped_size_.data(), grouped_refined_.data(),
              this->pole_of(i), offset_[std::size_t(i)], update(0, i), update(1, i));
      });
    }

    void multiply_side(int side, const Executor& executor) {
      const LargeKernels<T>& kernel = large_kernels<T>();
      const int left_rows = alive_ - right_only_, right_rows = alive_ - left_only_;
      T *const packed_left = all_.gathered_ + first_ * all_.stride_,
               *const packed_right = packed_left + kernel.packed_size(left_rows, left_),
               *const aside = packed_right + kernel.packed_size(right_rows, right_);
      kernel.pack(left_rows, left_, row(side, 0) + first_, all_.stride_, grouped_source_.data(),
                  packed_left);
      kernel.pack(right_rows, right_, row(side, 0) + seam_, all_.stride_,
                  grouped_source_.data() + left_only_, packed_right);
      for (int i = 0; i < dropped_; ++i)
        std::copy_n(row(side, dropped_source_[std::size_t(i)]) + first_, count_,
                    aside + std::int64_t(i) * count_);
      this->multiply(row(side, 0), update(side, 0), all_.stride_, packed_left, packed_right, aside,
                     executor);
    }

    const DivideBidiagonal& all_;
    T alpha_, beta_;
    bool is_last_;
    std::vector<T> size_, grouped_size_;  // d; the poles are d^2, and dropped_pole_ holds d
    std::vector<T> joint_;                // what new left vectors have of the joining row
  };

  std::int64_t n_, stride_;
  T* value_;
  const T* above_;
  T top_ = 0;  ///< the largest magnitude
  T* of_[2];
  Scratch<T> updates_, gathered_;
  const Executor& executor_;
};

}  // namespace keel::cpu
