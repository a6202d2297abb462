#pragma once

// Blocked reduction of a large symmetric matrix to tridiagonal form, from the last row up, as in
// LAPACK's latrd and syr2k. Each reflector of a panel needs one matrix-vector product. The whole
// panel is then applied to the rest of the matrix as one product. How work is split depends on
// sizes only, not on the executor.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "eigh_large_kernels.h"
#include "keel/executor.h"
#include "scratch.h"

namespace keel::cpu {

template <typename T>
class Reduction {
 public:
  /// Rows of `matrix` are read up to the end of their diagonal block. Row k is overwritten with
  /// reflector k, which ends with a 1 at entry k - 1; tau[k] is its factor.
  Reduction(std::int64_t n, T* matrix, T* diagonal, T* off_diagonal, T* tau,
            const Executor& executor)
      : n_(n),
        stride_(row_stride<T>(n)),
        matrix_(matrix),
        diagonal_(diagonal),
        off_diagonal_(off_diagonal),
        tau_(tau),
        executor_(executor),
        panel_(2 * kPanel * stride_),
        turned_(2 * kPanel * stride_),
        packed_(kernel_.packed_size(2 * kPanel, n)),
        products_(kMostPieces * stride_),
        sums_(kMostPieces * 2 * kPanel) {
    std::fill_n(panel_.data(), 2 * kPanel * stride_, T(0));
  }

  void run() {
    for (std::int64_t k = n_ - 1; k > 0;) {
      const std::int64_t count = std::min(kPanel, k);
      for (std::int64_t c = 0; c < count; ++c, --k) reduce_row(k, c);
      update(k + 1, count);
    }
    diagonal_[0] = matrix_[0];
    tau_[0] = 0;
  }

 private:
  static constexpr std::int64_t kPanel = 24;
  static constexpr std::int64_t kMostPieces = 16;
  static constexpr std::int64_t kProductBytes = 1 << 20;  // matrices from this size on are split
  // Below this size, threads would only move the matrix between their caches.
  static constexpr std::int64_t kThreadedUpdate = 512;

  /// Computes reflector k and the vectors v and w of its rank-2 update. The panel already holds c
  /// such pairs, in 2 c rows.
  void reduce_row(std::int64_t k, std::int64_t c) {
    T* const row = matrix_ + k * stride_;
    T factors[2 * kPanel];
    for (std::int64_t r = 0; r < 2 * c; ++r) factors[r] = panel_[(r ^ 1) * stride_ + k];
    kernel_.subtract_rows(2 * c, panel_, stride_, factors, k + 1, row);
    diagonal_[k] = row[k];
    T* const v = panel_ + 2 * c * stride_;
    T* const w = v + stride_;
    tau_[k] = kernel_.reflector(k, row, v, off_diagonal_[k - 1]);
    std::copy_n(v, k, row);

    const std::int64_t pieces = products_of(k);
    const auto piece = [&](std::int64_t p) {
      const std::int64_t first = row_of(k, p, pieces), end = row_of(k, p + 1, pieces);
      kernel_.symmetric_times(first, end, matrix_, stride_, v,
                              p == 0 ? w : products_ + p * stride_);
      const std::int64_t blocks = (k + kReach - 1) / kReach;
      kernel_.dots(2 * c, panel_, stride_, blocks * p / pieces * kReach,
                   blocks * (p + 1) / pieces * kReach, v, sums_ + p * 2 * kPanel);
    };
    if (pieces == 1)
      piece(0);
    else
      executor_(pieces, piece);
    std::fill(w + row_of(k, 1, pieces), w + k, T(0));
    for (std::int64_t p = 1; p < pieces; ++p)
      kernel_.add(row_of(k, p + 1, pieces), products_ + p * stride_, w);
    for (std::int64_t r = 0; r < 2 * c; ++r) {
      T sum = 0;
      for (std::int64_t p = 0; p < pieces; ++p) sum += sums_[p * 2 * kPanel + (r ^ 1)];
      factors[r] = sum;
    }
    kernel_.subtract_rows(2 * c, panel_, stride_, factors, k, w);
    kernel_.finish_product(k, tau_[k], v, w);
  }

  /// Subtracts the panel's products v w^T + w v^T from the first m rows.
  void update(std::int64_t m, std::int64_t count) {
    const std::int64_t depth = 2 * count;
    kernel_.pack(depth, m, panel_, stride_, nullptr, packed_);
    constexpr std::int64_t kRows = 2 * kReach;
    const auto piece = [&](std::int64_t p) {
      const std::int64_t first = p * kRows, rows = std::min(kRows, m - first);
      T* const turned = turned_ + first * depth;
      for (std::int64_t r = 0; r < depth; ++r) {
        const T* const from = panel_ + (r ^ 1) * stride_ + first;
        for (std::int64_t i = 0; i < rows; ++i) turned[i * depth + r] = from[i];
      }
      kernel_.multiply_packed(rows, std::min(m, first + kRows), depth, turned, depth, packed_,
                              matrix_ + first * stride_, stride_, Into::subtract);
    };
    const std::int64_t pieces = (m + kRows - 1) / kRows;
    if (m < kThreadedUpdate) {
      for (std::int64_t p = 0; p < pieces; ++p) piece(p);
    } else {
      // Alternate between long and short rows to balance the load.
      executor_(pieces, [&](std::int64_t p) { piece(p % 2 ? p / 2 : pieces - 1 - p / 2); });
    }
  }

  /// A matrix that fits into one core's cache is multiplied faster than threads wake up.
  static std::int64_t products_of(std::int64_t k) {
    return k * k / 2 * std::int64_t(sizeof(T)) < kProductBytes ? 1 : kMostPieces;
  }
  /// The first row of piece p, such that all pieces have about the same number of entries.
  static std::int64_t row_of(std::int64_t k, std::int64_t p, std::int64_t pieces) {
    if (p == pieces) return k;
    return std::int64_t(double(k) * std::sqrt(double(p) / double(pieces))) / kReach * kReach;
  }

  const LargeKernels<T>& kernel_ = large_kernels<T>();
  std::int64_t n_, stride_;
  T *matrix_, *diagonal_, *off_diagonal_, *tau_;
  const Executor& executor_;
  Scratch<T> panel_, turned_, packed_, products_, sums_;
};

}  // namespace keel::cpu
