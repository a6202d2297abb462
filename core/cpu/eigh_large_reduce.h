#pragma once

// Blocked reduction of a large symmetric or Hermitian matrix to tridiagonal form, from the last row
// up, as in LAPACK's latrd and syr2k. Each reflector of a panel needs one matrix-vector product. The
// whole panel is then applied to the rest of the matrix as one product. How work is split depends on
// sizes only, not on the executor.
//
// Complex numbers are in two planes, of real and of imaginary parts. The rows are then columns of the
// matrix that is reduced: it is the conjugate of the one that was given. A diagonal matrix of phases
// makes the tridiagonal matrix real.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "eigh_large_kernels.h"
#include "keel/executor.h"
#include "scratch.h"

namespace keel::cpu {

template <typename E, typename T = RealOf<E>>
class Reduction {
 public:
  /// Rows of `matrix` are read up to the end of their diagonal block. Row k is overwritten with
  /// reflector k, which ends with a 1 at entry k - 1; tau[k] is its factor. Row k of the tridiagonal
  /// matrix's vectors is to be multiplied by the phase of row k, whose parts are n apart.
  Reduction(std::int64_t n, T* matrix, T* diagonal, T* off_diagonal, T* tau, T* phase,
            const Executor& executor)
      : n_(n),
        stride_(row_stride<T>(n)),
        plane_(n * stride_),
        matrix_(matrix),
        diagonal_(diagonal),
        off_diagonal_(off_diagonal),
        tau_(tau),
        phase_(phase),
        executor_(executor),
        panel_(kPair * std::min(kPanel, n) * stride_),
        turned_(kPair * kPanel * stride_),
        packed_(kernel_.packed_size(kPair * kPanel, n)),
        products_(kMostPieces * kParts * stride_),
        sums_(kMostPieces * kSums) {
    std::fill_n(panel_.data(), kPair * std::min(kPanel, n) * stride_, T(0));
  }

  void run() {
    if constexpr (kParts == 2) {
      phase_[n_ - 1] = 1;
      phase_[2 * n_ - 1] = 0;
    }
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
  static constexpr std::int64_t kParts = kIsComplex<E> ? 2 : 1;
  static constexpr std::int64_t kPair =
      2 * kParts;  ///< the panel's rows for v and w of a reflector
  static constexpr std::int64_t kSums = kParts * kPair * kPanel;  ///< of a piece
  static constexpr std::int64_t kMostPieces = 16;
  static constexpr std::int64_t kProductBytes = 1 << 20;  // matrices from this size on are split
  // Below this size, threads would only move the matrix between their caches.
  static constexpr std::int64_t kThreadedUpdate = 512;

  /// The product v w^H + w v^H of two vectors, parts of which are rows of the panel: part `part` of
  /// column k is the sum of the rows, row r times factor(r, part, k).
  T factor(std::int64_t r, std::int64_t part, std::int64_t k) const {
    const std::int64_t other = r ^ (kParts + part);
    const T x = panel_[other * stride_ + k];
    return part == 1 && r % 2 == 0 ? -x : x;
  }

  /// Computes reflector k and the vectors v and w of its rank-2 update. The panel already holds c
  /// such pairs.
  void reduce_row(std::int64_t k, std::int64_t c) {
    T* const row = matrix_ + k * stride_;
    const std::int64_t count = kPair * c;
    T factors[kPair * kPanel];
    for (std::int64_t part = 0; part < kParts; ++part) {
      for (std::int64_t r = 0; r < count; ++r) factors[r] = factor(r, part, k);
      kernel_.subtract_rows(count, panel_, stride_, factors, k + 1, row + part * plane_);
    }
    diagonal_[k] = row[k];
    T* const v = panel_ + count * stride_;
    T* const w = v + kParts * stride_;
    make_reflector(k, row, v);
    for (std::int64_t part = 0; part < kParts; ++part)
      std::copy_n(v + part * stride_, k, row + part * plane_);

    const std::int64_t pieces = products_of(k);
    const auto piece = [&](std::int64_t p) {
      const std::int64_t first = row_of(k, p, pieces), end = row_of(k, p + 1, pieces);
      T* const product = p == 0 ? w : products_ + p * kParts * stride_;
      if constexpr (kParts == 1)
        kernel_.symmetric_times(first, end, matrix_, stride_, v, product);
      else
        kernel_.hermitian_times(first, end, matrix_, plane_, stride_, v, product);
      const std::int64_t blocks = (k + kReach - 1) / kReach;
      for (std::int64_t part = 0; part < kParts; ++part)
        kernel_.dots(count, panel_, stride_, blocks * p / pieces * kReach,
                     blocks * (p + 1) / pieces * kReach, v + part * stride_,
                     sums_ + p * kSums + part * kPair * kPanel);
    };
    if (pieces == 1)
      piece(0);
    else
      executor_(pieces, piece);
    for (std::int64_t part = 0; part < kParts; ++part) {
      T* const sum = w + part * stride_;
      std::fill(sum + row_of(k, 1, pieces), sum + k, T(0));
      for (std::int64_t p = 1; p < pieces; ++p)
        kernel_.add(row_of(k, p + 1, pieces), products_ + (p * kParts + part) * stride_, sum);
    }
    T dots[kSums];  // of all rows of the panel with each part of v
    for (std::int64_t part = 0; part < kParts; ++part)
      for (std::int64_t i = part * kPair * kPanel; i < part * kPair * kPanel + count; ++i) {
        dots[i] = 0;
        for (std::int64_t p = 0; p < pieces; ++p) dots[i] += sums_[p * kSums + i];
      }
    for (std::int64_t part = 0; part < kParts; ++part) {
      for (std::int64_t r = 0; r < count; ++r) factors[r] = overlap(r, part, dots);
      kernel_.subtract_rows(count, panel_, stride_, factors, k, w + part * stride_);
    }
    kernel_.finish_product(k, tau_[k], kParts, stride_, v, w);
  }

  void make_reflector(std::int64_t k, const T* row, T* v) {
    if constexpr (kParts == 1) {
      tau_[k] = kernel_.reflector(k, row, v, off_diagonal_[k - 1]);
    } else {
      T turn[2];
      tau_[k] = kernel_.complex_reflector(k, row, plane_, stride_, v, off_diagonal_[k - 1], turn);
      const T re = phase_[k] * turn[0] - phase_[n_ + k] * turn[1],
              im = phase_[k] * turn[1] + phase_[n_ + k] * turn[0];
      // A product of many would drift away from size 1.
      const T mended = T(1.5) - T(0.5) * (re * re + im * im);
      const bool joined = off_diagonal_[k - 1] != 0;
      phase_[k - 1] = joined ? mended * re : T(1);
      phase_[n_ + k - 1] = joined ? mended * im : T(0);
    }
  }

  /// What row r of the panel contributes to part `part` of (v w^H + w v^H) x, where `dots` are the
  /// products of all rows with x.
  static T overlap(std::int64_t r, std::int64_t part, const T* dots) {
    if constexpr (kParts == 1) {
      return dots[r ^ 1];
    } else {
      const std::int64_t other =
          (r ^ 2) & ~std::int64_t(1);  // the real part of w for v, of v for w
      const T *const with_re = dots + other, *const with_im = with_re + kPair * kPanel;
      const T re = with_re[0] + with_im[1], im = with_im[0] - with_re[1];
      return r % 2 == part ? re : part == 1 ? im : -im;
    }
  }

  /// Subtracts the panel's products v w^H + w v^H from the first m rows.
  void update(std::int64_t m, std::int64_t count) {
    const std::int64_t depth = kPair * count;
    kernel_.pack(depth, m, panel_, stride_, nullptr, packed_);
    constexpr std::int64_t kRows = 2 * kReach;
    const auto piece = [&](std::int64_t p) {
      const std::int64_t first = p * kRows, rows = std::min(kRows, m - first);
      T* const turned = turned_ + first * depth;
      for (std::int64_t part = 0; part < kParts; ++part) {
        for (std::int64_t r = 0; r < depth; ++r)
          for (std::int64_t i = 0; i < rows; ++i)
            turned[i * depth + r] = factor(r, part, first + i);
        kernel_.multiply_packed(rows, std::min(m, first + kRows), depth, turned, depth, packed_,
                                matrix_ + part * plane_ + first * stride_, stride_, Into::subtract);
      }
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
    return k * k / 2 * std::int64_t(sizeof(E)) < kProductBytes ? 1 : kMostPieces;
  }
  /// The first row of piece p, such that all pieces have about the same number of entries.
  static std::int64_t row_of(std::int64_t k, std::int64_t p, std::int64_t pieces) {
    if (p == pieces) return k;
    return std::int64_t(double(k) * std::sqrt(double(p) / double(pieces))) / kReach * kReach;
  }

  const LargeKernels<T>& kernel_ = large_kernels<T>();
  std::int64_t n_, stride_, plane_;
  T *matrix_, *diagonal_, *off_diagonal_, *tau_, *phase_;
  const Executor& executor_;
  Scratch<T> panel_, turned_, packed_, products_, sums_;
};

}  // namespace keel::cpu
