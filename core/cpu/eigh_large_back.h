#pragma once

// Back-transformation of the tridiagonal matrix's eigenvectors: applies reflectors k = 2 .. n - 1,
// in this order, in blocks of the form I - Y T Y^H. With vectors as rows this is z <- z - (z Y*)
// (T^T Y^T), two products, where Y* is the conjugate. Their right-hand factors are packed once. Then
// each thread takes a few vectors through all blocks.
//
// Complex numbers are in two planes, of real and of imaginary parts, and a product of complex matrices
// is one of real matrices: (A, B) times (X, Y) and (-Y, X), one below the other.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "eigh_large_kernels.h"
#include "keel/executor.h"
#include "scratch.h"

namespace keel::cpu {

template <typename E, typename T = RealOf<E>>
class BackTransformation {
 public:
  /// Row k of `reflectors` holds reflector k in its first k entries, of which the imaginary parts are
  /// n rows further. `phase`: see Reduction. `first` and `second` are scratch memory of
  /// scratch_size(n) each. If `longer` is not zero, reflectors are longer by this, and the vectors by one less.
  BackTransformation(std::int64_t n, const T* reflectors, const T* tau, const T* phase, T* first,
                     T* second, std::int64_t longer = 0)
      : n_(n),
        longer_(longer),
        stride_(row_stride<T>(length_of(n, longer))),
        plane_(n * stride_),
        reflectors_(reflectors),
        tau_(tau),
        phase_(phase) {
    for (std::int64_t k = longer == 0 ? 2 : 0; k < n; k += kBlock) {
      const std::int64_t some = std::min(kBlock, n - k);
      Block block{k, some, k + some - 1 + longer, {}, {}};
      for (std::int64_t part = 0; part < kParts; ++part) {
        block.y[part] = first;
        block.product[part] = second;
        first += kernel_.packed_size(block.length, kParts * block.count);
        second += kernel_.packed_size(kParts * block.count, block.length);
      }
      blocks_.push_back(block);
    }
  }

  static std::int64_t scratch_size(std::int64_t n, std::int64_t longer = 0) {
    std::int64_t size = 0;
    for (std::int64_t k = longer == 0 ? 2 : 0; k < n; k += kBlock) {
      const std::int64_t count = kParts * std::min(kBlock, n - k),
                         length = k + count / kParts - 1 + longer;
      size += kParts * std::max(large_kernels<T>().packed_size(length, count),
                                large_kernels<T>().packed_size(count, length));
    }
    return size;
  }

  /// Column j of `to` is computed from row order[j] of `vectors`.
  void run(const T* vectors, const int* order, E* to, std::int64_t to_stride,
           const Executor& executor) const {
    prepare(executor);
    const std::int64_t pieces = pieces_of(n_, 24, 64);  // few enough that they stay in cache
    executor(pieces, [&](std::int64_t p) {
      const std::int64_t first = n_ * p / pieces, end = n_ * (p + 1) / pieces;
      apply(end - first, vectors, order + first, to + first, to_stride);
    });
  }

  /// Packs the factors of all blocks, which turn() needs.
  void prepare(const Executor& executor) const {
    const auto blocks = std::int64_t(blocks_.size());
    executor(blocks, [&](std::int64_t b) { prepare(blocks_[std::size_t(blocks - 1 - b)]); });
  }

  /// Applies the reflectors to `some` rows, with parts that are stride_ apart.
  void turn(std::int64_t some, T* rows) const {
    const std::int64_t step = kParts * stride_;
    Scratch<T> overlap(some * kParts * kBlock);
    for (const Block& block : blocks_) {
      const std::int64_t length = block.length, all = kParts * block.count;
      for (std::int64_t part = 0; part < kParts; ++part)
        kernel_.multiply_packed(some, all, length, rows + part * stride_, step, block.y[part],
                                overlap, kParts * kBlock, part == 0 ? Into::set : Into::add);
      for (std::int64_t part = 0; part < kParts; ++part)
        kernel_.multiply_packed(some, length, all, overlap, kParts * kBlock, block.product[part],
                                rows + part * stride_, step, Into::subtract);
    }
  }

 private:
  static constexpr std::int64_t kParts = kIsComplex<E> ? 2 : 1;
  static constexpr std::int64_t kBlock = 64;
  static std::int64_t length_of(std::int64_t n, std::int64_t longer) {
    return longer == 0 ? n : n + longer - 1;
  }

  struct Block {
    std::int64_t first, count, length;
    T *y[kParts], *product[kParts];  // Y* and T^T Y^T, packed
  };

  /// Packs the two right-hand factors by which the parts of a product (A, B) with Y^T are computed,
  /// from Y^T's real parts, the first `count` rows, and its imaginary parts, which follow.
  void pack_rows(std::int64_t count, std::int64_t length, T* rows, std::int64_t stride,
                 T* const (&packed)[kParts]) const {
    if constexpr (kParts == 2) {
      std::vector<int> turned(static_cast<std::size_t>(2 * count));
      for (std::int64_t r = 0; r < 2 * count; ++r)
        turned[std::size_t(r)] = int(r < count ? r + count : r - count);
      kernel_.pack(2 * count, length, rows, stride, turned.data(), packed[1]);
      for (std::int64_t i = count * stride; i < 2 * count * stride; ++i) rows[i] = -rows[i];
    }
    kernel_.pack(kParts * count, length, rows, stride, nullptr, packed[0]);
  }

  void prepare(const Block& block) const {
    const std::int64_t count = block.count, length = block.length, all = kParts * count;
    const std::int64_t stride = row_stride<T>(length);
    Scratch<T> rows(all * stride), columns(length * all), product(all * stride),
        packed(kParts * kernel_.packed_size(all, length)), overlap(count * all),
        factor(count * all);
    for (std::int64_t part = 0; part < kParts; ++part)
      for (std::int64_t r = 0; r < count; ++r) {
        const std::int64_t own = block.first + r, numbers = own + longer_;
        T* const row = rows + (part * count + r) * stride;
        std::copy_n(reflectors_ + part * plane_ + own * stride_, numbers, row);
        std::fill(row + numbers, row + length, T(0));
      }
    // z Y* is made of (Y_re, -Y_im) for the real parts of z, and of (Y_im, Y_re) for the others.
    constexpr std::int64_t kTile = 16;
    for (std::int64_t which = 0; which < kParts; ++which) {
      for (std::int64_t left = 0; left < length; left += kTile)
        for (std::int64_t r = 0; r < all; ++r) {
          const T* const from = rows + (r + which * count) % all * stride;
          const T sign = which == 0 && r >= count ? T(-1) : T(1);
          for (std::int64_t j = left; j < std::min(length, left + kTile); ++j)
            columns[j * all + r] = sign * from[j];
        }
      kernel_.pack(length, all, columns, all, nullptr, block.y[which]);
      kernel_.multiply_packed(count, all, length, rows + which * count * stride, stride,
                              block.y[which], overlap, all, which == 0 ? Into::set : Into::add);
    }
    // Row k of T is tau_k times (-(row k of Y^H Y) T, 1). `overlap` has the conjugate of Y^H Y. We
    // store T^T.
    std::fill_n(factor.data(), count * all, T(0));
    std::vector<T> row(static_cast<std::size_t>(all));
    for (std::int64_t k = 0; k < count; ++k) {
      const T own = tau_[block.first + k];
      // The rows of T^T are the columns of T, so each entry is one dot product of rows.
      for (std::int64_t j = 0; j < k; ++j) {
        const auto dot = [&](std::int64_t x_part, std::int64_t y_part) {
          T sum[4] = {};
          const T *x = overlap + k * all + x_part * count, *y = factor + j * all + y_part * count;
          std::int64_t i = j;
          for (; i + 4 <= k; i += 4)
            for (int h = 0; h < 4; ++h) sum[h] += x[i + h] * y[i + h];
          for (; i < k; ++i) sum[0] += x[i] * y[i];
          return (sum[0] + sum[1]) + (sum[2] + sum[3]);
        };
        if constexpr (kParts == 1) {
          row[std::size_t(j)] = -own * dot(0, 0);
        } else {
          row[std::size_t(j)] = -own * (dot(0, 0) + dot(1, 1));
          row[std::size_t(count + j)] = -own * (dot(0, 1) - dot(1, 0));
        }
      }
      for (std::int64_t j = 0; j < k; ++j)
        for (std::int64_t part = 0; part < kParts; ++part)
          factor[j * all + part * count + k] = row[std::size_t(part * count + j)];
      factor[k * all + k] = own;
    }
    T* into[kParts];
    for (std::int64_t part = 0; part < kParts; ++part)
      into[part] = packed + part * kernel_.packed_size(all, length);
    pack_rows(count, length, rows, stride, into);
    for (std::int64_t part = 0; part < kParts; ++part)
      kernel_.multiply_packed(count, length, all, factor, all, into[part],
                              product + part * count * stride, stride, Into::set);
    pack_rows(count, length, product, stride, block.product);
  }

  void apply(std::int64_t some, const T* vectors, const int* order, E* to,
             std::int64_t to_stride) const {
    const std::int64_t step = kParts * stride_;
    Scratch<T> rows(some * step);
    for (std::int64_t j = 0; j < some; ++j) {
      const T* const from = vectors + order[j] * stride_;
      for (std::int64_t part = 0; part < kParts; ++part)
        for (std::int64_t i = 0; i < n_; ++i)
          rows[j * step + part * stride_ + i] =
              kParts == 1 ? from[i] : phase_[part * n_ + i] * from[i];
    }
    turn(some, rows);
    if constexpr (kParts == 1) {
      Scratch<T> sign(some);
      for (std::int64_t j = 0; j < some; ++j) sign[j] = kernel_.sign(n_, rows + j * step);
      kernel_.store_columns(n_, some, rows, step, sign, to, to_stride);
    } else {
      kernel_.store_complex_columns(n_, some, rows, stride_, step, reinterpret_cast<T*>(to),
                                    to_stride);
    }
  }

  const LargeKernels<T>& kernel_ = large_kernels<T>();
  std::int64_t n_, longer_, stride_, plane_;
  const T *reflectors_, *tau_, *phase_;
  std::vector<Block> blocks_;
};

}  // namespace keel::cpu
