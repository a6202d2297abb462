#pragma once

// Back-transformation of the tridiagonal matrix's eigenvectors: applies reflectors k = 2 .. n - 1,
// in this order, in blocks of the form I - Y T Y^T. With vectors as rows this is z <- z - (z Y)
// (T^T Y^T), two products. Their right-hand factors are packed once. Then each thread takes a few
// vectors through all blocks.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "eigh_large_kernels.h"
#include "keel/executor.h"
#include "scratch.h"

namespace keel::cpu {

template <typename T>
class BackTransformation {
 public:
  /// Row k of `reflectors` holds reflector k in its first k entries. `first` and `second` are
  /// scratch memory of scratch_size(n) each.
  BackTransformation(std::int64_t n, const T* reflectors, const T* tau, T* first, T* second)
      : n_(n), stride_(row_stride<T>(n)), reflectors_(reflectors), tau_(tau) {
    for (std::int64_t k = 2; k < n; k += kBlock) {
      const std::int64_t count = std::min(kBlock, n - k);
      blocks_.push_back({k, count, first, second});
      first += kernel_.packed_size(blocks_.back().length(), count);
      second += kernel_.packed_size(count, blocks_.back().length());
    }
  }

  static std::int64_t scratch_size(std::int64_t n) {
    std::int64_t size = 0;
    for (std::int64_t k = 2; k < n; k += kBlock) {
      const std::int64_t count = std::min(kBlock, n - k), length = k + count - 1;
      size += std::max(large_kernels<T>().packed_size(length, count),
                       large_kernels<T>().packed_size(count, length));
    }
    return size;
  }

  /// Column j of `to` is computed from row order[j] of `vectors`.
  void run(const T* vectors, const int* order, T* to, std::int64_t to_stride,
           const Executor& executor) const {
    const auto blocks = std::int64_t(blocks_.size());
    executor(blocks, [&](std::int64_t b) { prepare(blocks_[std::size_t(blocks - 1 - b)]); });
    const std::int64_t pieces = pieces_of(n_, 24, 64);  // few enough that they stay in cache
    executor(pieces, [&](std::int64_t p) {
      const std::int64_t first = n_ * p / pieces, end = n_ * (p + 1) / pieces;
      apply(end - first, vectors, order + first, to + first, to_stride);
    });
  }

 private:
  static constexpr std::int64_t kBlock = 64;

  struct Block {
    std::int64_t first, count;
    T *y, *product;  // Y and T^T Y^T, packed
    std::int64_t length() const { return first + count - 1; }
  };

  void prepare(const Block& block) const {
    const std::int64_t count = block.count, length = block.length();
    const std::int64_t stride = row_stride<T>(length);
    Scratch<T> rows(count * stride), columns(length * count), product(count * stride),
        packed(kernel_.packed_size(count, length)), overlap(count * count), factor(count * count);
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t own = block.first + r;
      std::copy_n(reflectors_ + own * stride_, own, rows + r * stride);
      std::fill(rows + r * stride + own, rows + r * stride + length, T(0));
    }
    constexpr std::int64_t kTile = 16;
    for (std::int64_t left = 0; left < length; left += kTile)
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t j = left; j < std::min(length, left + kTile); ++j)
          columns[j * count + r] = rows[r * stride + j];
    kernel_.pack(length, count, columns, count, nullptr, block.y);
    kernel_.multiply_packed(count, count, length, rows, stride, block.y, overlap, count, Into::set);
    // Row k of T is tau_k times (-(row k of Y^T Y) T, 1). We store T^T.
    std::fill_n(factor.data(), count * count, T(0));
    std::vector<T> row(static_cast<std::size_t>(count));
    for (std::int64_t k = 0; k < count; ++k) {
      const T own = tau_[block.first + k];
      // The rows of T^T are the columns of T, so each entry is one dot product of rows.
      for (std::int64_t j = 0; j < k; ++j) {
        T sum[4] = {};
        const T *x = overlap + k * count, *y = factor + j * count;
        std::int64_t i = j;
        for (; i + 4 <= k; i += 4)
          for (int h = 0; h < 4; ++h) sum[h] += x[i + h] * y[i + h];
        for (; i < k; ++i) sum[0] += x[i] * y[i];
        row[std::size_t(j)] = -own * ((sum[0] + sum[1]) + (sum[2] + sum[3]));
      }
      for (std::int64_t j = 0; j < k; ++j) factor[j * count + k] = row[std::size_t(j)];
      factor[k * count + k] = own;
    }
    kernel_.pack(count, length, rows, stride, nullptr, packed);
    kernel_.multiply_packed(count, length, count, factor, count, packed, product, stride,
                            Into::set);
    kernel_.pack(count, length, product, stride, nullptr, block.product);
  }

  void apply(std::int64_t some, const T* vectors, const int* order, T* to,
             std::int64_t to_stride) const {
    Scratch<T> rows(some * stride_), overlap(some * kBlock), sign(some);
    for (std::int64_t j = 0; j < some; ++j)
      std::copy_n(vectors + order[j] * stride_, n_, rows + j * stride_);
    for (const Block& block : blocks_) {
      const std::int64_t length = block.length();
      kernel_.multiply_packed(some, block.count, length, rows, stride_, block.y, overlap, kBlock,
                              Into::set);
      kernel_.multiply_packed(some, length, block.count, overlap, kBlock, block.product, rows,
                              stride_, Into::subtract);
    }
    for (std::int64_t j = 0; j < some; ++j) sign[j] = kernel_.sign(n_, rows + j * stride_);
    kernel_.store_columns(n_, some, rows, stride_, sign, to, to_stride);
  }

  const LargeKernels<T>& kernel_ = large_kernels<T>();
  std::int64_t n_, stride_;
  const T *reflectors_, *tau_;
  std::vector<Block> blocks_;
};

}  // namespace keel::cpu
