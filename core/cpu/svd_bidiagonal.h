#pragma once

// Singular values without vectors, one matrix at a time: reduction to bidiagonal form, then the values of that.
//
// The matrix is given as `lines`, which are its columns if it is tall and its rows if it is wide, so that there are no
// more lines than numbers in one of them. A line is contiguous.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "eigh_large_kernels.h"
#include "formulas/scale.h"
#include "keel/executor.h"
#include "keel/matrices.h"
#include "scratch.h"

namespace keel::cpu {

constexpr std::int64_t up_to_reach(std::int64_t count) {
  return (count + kReach - 1) / kReach * kReach;
}

/// The lines of a matrix.
template <typename T>
class Lines {
 public:
  Lines(Rectangles<const T> matrices, std::int64_t index)
      : count(std::min(matrices.rows, matrices.columns)),
        length(std::max(matrices.rows, matrices.columns)),
        tall_(matrices.rows > matrices.columns),
        data_(matrices[index]),
        stride_(matrices.row_stride) {}

  const std::int64_t count, length;

  /// The largest magnitude, or NaN if a number is not finite.
  T largest() const {
    T most = 0;
    for (std::int64_t i = 0; i < (tall_ ? length : count); ++i) {
      const T x = large_kernels<T>().largest(tall_ ? count : length, data_ + i * stride_);
      if (!(x <= most)) most = x;
      if (std::isnan(x)) break;
    }
    return most;
  }

  /// The length without numbers at the end that are zero in each line, but no less than `count`.
  std::int64_t length_with_numbers() const {
    const std::int64_t down = tall_ ? stride_ : 1, along = tall_ ? 1 : stride_;
    for (std::int64_t i = length; i > count; --i)
      for (std::int64_t j = 0; j < count; ++j)
        if (data_[(i - 1) * down + j * along] != 0) return i;
    return count;
  }

  T diagonal(std::int64_t i) const { return data_[i * stride_ + i]; }
  /// Whether only the diagonal has other numbers than zero. Of most matrices that is clear at once.
  bool is_diagonal() const {
    const std::int64_t rows = tall_ ? length : count, columns = tall_ ? count : length;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        if (i != j && data_[i * stride_ + j] != 0) return false;
    return true;
  }

  /// Numbers first .. end of each line, at unit size. A line begins `stride` after the one before it.
  template <typename To>
  void copy(std::int64_t first, std::int64_t end, const UnitScale<To>& unit,
            std::type_identity_t<To>* to, std::int64_t stride) const {
    read(tall_, first, end, unit, to, stride);
  }
  /// The first of these numbers of all lines, `stride` after it the second ones, and so on.
  template <typename To>
  void copy_turned(std::int64_t first, std::int64_t end, const UnitScale<To>& unit,
                   std::type_identity_t<To>* to, std::int64_t stride) const {
    read(!tall_, first, end, unit, to, stride);
  }

 private:
  template <typename To>
  void read(bool turn, std::int64_t first, std::int64_t end, const UnitScale<To>& unit,
            std::type_identity_t<To>* to, std::int64_t stride) const {
    const std::int64_t rows = tall_ ? end - first : count, columns = tall_ ? count : end - first;
    const T* const from = data_ + (tall_ ? first * stride_ : first);
    const std::int64_t tile = turn ? 16 : rows;  // rows whose targets' lines stay in cache
    for (std::int64_t top = 0; top < rows; top += tile)
      if (turn)
        for (std::int64_t j = 0; j < columns; ++j)
          for (std::int64_t i = top; i < std::min(rows, top + tile); ++i)
            to[j * stride + i] = unit.down(To(from[i * stride_ + j]));
      else
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < columns; ++j)
            to[i * stride + j] = unit.down(To(from[i * stride_ + j]));
  }

  bool tall_;
  const T* data_;
  std::int64_t stride_;
};

/// R of a QR factorisation of lines that are given a piece at a time.
template <typename T>
class TriangularFactor {
 public:
  /// Numbers of each line in a piece, at most.
  static constexpr std::int64_t kNumbers = 256;

  /// `factor`, with rows `stride` apart, is R so far: zero at first.
  TriangularFactor(std::int64_t count, T* factor, std::int64_t stride)
      : count_(count),
        factor_(factor),
        factor_stride_(stride),
        stride_(row_stride<T>(kNumbers)),
        lines_((count + kBlock) * stride_) {
    std::fill_n(lines_.data(), (count + kBlock) * stride_, T(0));
  }
  T* lines() const { return lines_; }
  std::int64_t stride() const { return stride_; }

  /// Takes the next piece into R. It is in lines(), which are overwritten.
  void take(std::int64_t numbers) {
    const std::int64_t end = up_to_reach(numbers);
    for (std::int64_t j = 0; j < count_; ++j)
      std::fill_n(lines_ + j * stride_ + numbers, end - numbers, T(0));
    for (std::int64_t first = 0; first < count_; first += kBlock) {
      // The reflectors I - tau v v^T of a block, with 1 in their own row of R and the rest in their line. T is that of
      // the product I - V T V^T, by columns.
      const std::int64_t block = std::min(kBlock, count_ - first);
      T *const v = lines_ + first * stride_, t[kBlock][kBlock] = {}, sums[kBlock];
      // Behind the last line there are zeros: the kernel takes an even number.
      const auto with_block = [&](const T* line) {
        kernel_.dots(kBlock, v, stride_, 0, end, line, sums);
      };
      for (std::int64_t k = 0; k < block; ++k) {
        T *const line = v + k * stride_, *const row = factor_ + (first + k) * factor_stride_;
        with_block(line);
        const T alpha = row[first + k], square = sums[k];
        T tau = 0;
        if (square > std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon()) {
          const T norm = std::copysign(std::sqrt(alpha * alpha + square), -alpha);
          const T scale = 1 / (alpha - norm);
          for (std::int64_t i = 0; i < end; ++i) line[i] *= scale;
          tau = (norm - alpha) / norm;
          row[first + k] = norm;
          for (std::int64_t i = 0; i < k; ++i)
            for (std::int64_t l = i; l < k; ++l) t[k][i] -= tau * scale * t[l][i] * sums[l];
        } else {
          std::fill_n(line, end, T(0));
        }
        t[k][k] = tau;
        with_block(line);
        for (std::int64_t j = k + 1; j < block; ++j) {
          T* const other = v + j * stride_;
          const T part = tau * (row[first + j] + sums[j]);
          row[first + j] -= part;
          for (std::int64_t i = 0; i < end; ++i) other[i] -= part * line[i];
        }
      }
      for (std::int64_t j = first + block; j < count_; ++j) {
        T* const line = lines_ + j * stride_;
        with_block(line);
        T parts[kBlock] = {};
        for (std::int64_t k = 0; k < block; ++k)
          for (std::int64_t i = 0; i <= k; ++i)
            parts[k] += t[k][i] * (sums[i] + factor_[(first + i) * factor_stride_ + j]);
        for (std::int64_t k = 0; k < block; ++k)
          factor_[(first + k) * factor_stride_ + j] -= parts[k];
        kernel_.subtract_rows(kBlock, v, stride_, parts, end, line);
      }
    }
  }

 private:
  static constexpr std::int64_t kBlock = 8;

  const LargeKernels<T>& kernel_ = large_kernels<T>();
  std::int64_t count_;
  T* factor_;
  std::int64_t factor_stride_, stride_;
  Scratch<T> lines_;
};

/// Blocked Householder reduction to bidiagonal form, from the last line up, as in LAPACK's labrd and gebrd. A pair of
/// reflectors needs the products of the matrix with two vectors, of which the second depends on all of the first. A few
/// lines give their part of the first product and are then, while they are in cache, added up for the second, so the
/// matrix is read once a step. The rest of the work is one product of matrices a panel. How work is split depends on
/// sizes only, not on the executor.
template <typename T>
class Bidiagonalisation {
 public:
  /// What is left of the reflectors, for the vectors: line k of the matrix holds the first reflector of step k, which
  /// ends with a 1 at entry length - count + k, and row k of `near`, with rows row_stride<T>(count) apart, the second
  /// one, which ends at entry k - 1.
  struct Reflectors {
    T *tau, *near, *near_tau;
  };

  /// Lines are row_stride<T>(length) apart, length >= count, and are overwritten. Row k of the bidiagonal matrix has
  /// diagonal[k] in column k and off_diagonal[k - 1] in column k - 1.
  Bidiagonalisation(std::int64_t count, std::int64_t length, T* lines, T* diagonal, T* off_diagonal,
                    const Executor& executor, const Reflectors* kept = nullptr)
      : count_(count),
        length_(length),
        stride_(row_stride<T>(length)),
        near_stride_(row_stride<T>(count)),
        lines_(lines),
        diagonal_(diagonal),
        off_diagonal_(off_diagonal),
        executor_(executor),
        kept_(kept),
        far_(2 * kPanel * stride_),
        near_(2 * kPanel * near_stride_),
        turned_(2 * kPanel * count),
        packed_(kernel_.packed_size(2 * kPanel, length)),
        products_(products_of(count, length) == 1 ? 0 : kMostPieces * stride_) {
    std::fill_n(far_.data(), 2 * kPanel * stride_, T(0));
    std::fill_n(near_.data(), 2 * kPanel * near_stride_, T(0));
  }

  void run() {
    for (std::int64_t k = count_ - 1; k >= 0;) {
      const std::int64_t pairs = std::min(kPanel, k + 1);
      for (std::int64_t c = 0; c < pairs; ++c, --k) reduce(k, c);
      update(k + 1, pairs);
    }
  }

 private:
  static constexpr std::int64_t kPanel = 24, kMostPieces = 16;
  static constexpr std::int64_t kProductBytes = 1 << 20;    // as in eigh_large_reduce.h
  static constexpr std::int64_t kThreadedUpdate = 1 << 18;  // entries

  /// Line k and entry `last` of the others. The matrix so far is that of the lines minus the sums of u y^T and x v^T,
  /// where u and x are as long as a line (far_) and y and v have an entry a line (near_), for c pairs.
  void reduce(std::int64_t k, std::int64_t c) {
    const std::int64_t last = length_ - count_ + k, end = up_to_reach(last + 1), rows = 2 * c;
    T *const line = lines_ + k * stride_, *const u = far_ + rows * stride_, *const x = u + stride_,
             *const y = near_ + rows * near_stride_, *const v = y + near_stride_;
    T factors[2 * kPanel];
    for (std::int64_t r = 0; r < rows; ++r) factors[r] = near_[r * near_stride_ + k];
    kernel_.subtract_rows(rows, far_, stride_, factors, last + 1, line);
    const T tau = kernel_.reflector(last + 1, line, u, diagonal_[k]);
    if (kept_ != nullptr) {
      std::copy_n(u, last + 1, line);
      kept_->tau[k] = tau;
      kept_->near_tau[k] = 0;
    }
    if (k == 0) return;

    // y = tau A^T u, and v becomes entry `last` of the lines, without what the first reflector takes away.
    kernel_.dots(rows, far_, stride_, 0, end, u, factors);
    std::fill_n(y, up_to_reach(k), T(0));
    kernel_.subtract_rows(rows, near_, near_stride_, factors, k, y);
    for (std::int64_t j = 0; j < k; ++j) v[j] = lines_[j * stride_ + last];
    for (std::int64_t r = 0; r < rows; ++r) factors[r] = far_[r * stride_ + last];
    kernel_.subtract_rows(rows, near_, near_stride_, factors, k, v);
    multiply(k, end, u, tau, y, v, x);  // x = A v

    const T alpha = v[k - 1], second = kernel_.reflector(k, v, v, off_diagonal_[k - 1]);
    if (kept_ != nullptr) {
      std::copy_n(v, k, kept_->near + k * near_stride_);
      kept_->near_tau[k] = second;
    }
    if (second == 0) {
      std::fill_n(x, end, T(0));
      return;
    }
    const T factor = 1 / (alpha - off_diagonal_[k - 1]), rest = 1 - factor * alpha;
    const T* const before = lines_ + (k - 1) * stride_;
    for (std::int64_t i = 0; i < end; ++i) x[i] = factor * x[i] + rest * before[i];
    kernel_.dots(rows + 2, near_, near_stride_, 0, up_to_reach(k), v, factors);
    factors[rows + 1] = 0;
    kernel_.subtract_rows(rows + 2, far_, stride_, factors, last + 1, x);
    for (std::int64_t i = 0; i < end; ++i) x[i] *= second;
  }

  /// y = tau (y + A^T u), z -= y, and w = A z, for the first k lines.
  void multiply(std::int64_t k, std::int64_t end, const T* u, T tau, T* y, T* z, T* w) {
    const std::int64_t pieces = products_of(k, end);
    const auto piece = [&](std::int64_t p) {
      const std::int64_t first = k * p / pieces, count = k * (p + 1) / pieces - first;
      kernel_.both_products(count, end, lines_ + first * stride_, stride_, u, tau, y + first,
                            z + first, p == 0 ? w : products_ + p * stride_);
    };
    if (pieces == 1) return piece(0);
    executor_(pieces, piece);
    for (std::int64_t p = 1; p < pieces; ++p) kernel_.add(end, products_ + p * stride_, w);
  }

  /// Subtracts the panel's products from the first `count` lines.
  void update(std::int64_t count, std::int64_t pairs) {
    const std::int64_t depth = 2 * pairs, length = length_ - count_ + count;
    if (count == 0) return;
    kernel_.pack(depth, length, far_, stride_, nullptr, packed_);
    constexpr std::int64_t kRows = 2 * kReach;
    const auto piece = [&](std::int64_t p) {
      const std::int64_t first = p * kRows, rows = std::min(kRows, count - first);
      T* const turned = turned_ + first * depth;
      for (std::int64_t r = 0; r < depth; ++r)
        for (std::int64_t j = 0; j < rows; ++j)
          turned[j * depth + r] = near_[r * near_stride_ + first + j];
      kernel_.multiply_packed(rows, length, depth, turned, depth, packed_, lines_ + first * stride_,
                              stride_, Into::subtract);
    };
    const std::int64_t pieces = (count + kRows - 1) / kRows;
    if (count * length < kThreadedUpdate)
      for (std::int64_t p = 0; p < pieces; ++p) piece(p);
    else
      executor_(pieces, piece);
  }

  static std::int64_t products_of(std::int64_t count, std::int64_t length) {
    return count * length * std::int64_t(sizeof(T)) < kProductBytes ? 1 : kMostPieces;
  }

  const LargeKernels<T>& kernel_ = large_kernels<T>();
  std::int64_t count_, length_, stride_, near_stride_;
  T *lines_, *diagonal_, *off_diagonal_;
  const Executor& executor_;
  const Reflectors* kept_;
  Scratch<T> far_, near_, turned_, packed_, products_;
};

/// The singular values of a bidiagonal matrix at unit size, descending. Those that are not small follow from their
/// squares, which are eigenvalues of a tridiagonal matrix. The squares' errors are relative to the largest, so smaller
/// values are bisected: how many lie below a number follows from the entries' own squares, without cancellation.
template <typename T>
void values_of_bidiagonal(std::int64_t n, const T* diagonal, const T* off_diagonal, T* values) {
  constexpr T kEps = std::numeric_limits<T>::epsilon();
  const Scratch<T> d_square(n), e_square(n), squares(n), links(n);
  T largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    d_square[i] = diagonal[i] * diagonal[i];
    e_square[i] = i + 1 < n ? off_diagonal[i] * off_diagonal[i] : T(0);
    squares[i] = d_square[i] + (i > 0 ? e_square[i - 1] : T(0));
    links[i] = i + 1 < n ? diagonal[i] * off_diagonal[i] : T(0);
    largest = std::max(largest, squares[i] + e_square[i]);
  }
  constexpr int kMostSweeps = 200;
  const bool solved = large_kernels<T>().tridiagonal_values(n, squares, links, kMostSweeps);
  std::sort(squares.data(), squares + n, std::greater<T>());
  std::int64_t first = 0;
  for (; solved && first < n && squares[first] >= largest / 16; ++first)
    values[first] = std::sqrt(squares[first]);
  const T most = 2 * std::sqrt(largest), tolerance = (solved ? kEps / 4 : kEps) * most;
  for (; first < n; first += kBisected) {
    T found[kBisected];
    int place[kBisected];
    const auto count = std::min<std::int64_t>(kBisected, n - first);
    for (std::int64_t i = 0; i < kBisected; ++i) {
      place[i] = int(first + std::min(i, count - 1));
      found[i] = std::sqrt(std::clamp(solved ? squares[place[i]] : T(0), T(0), largest));
    }
    large_kernels<T>().bisect(n, d_square, e_square, count, place, most, tolerance, found);
    std::copy_n(found, count, values + first);
  }
  std::sort(values, values + n, std::greater<T>());
}

}  // namespace keel::cpu
