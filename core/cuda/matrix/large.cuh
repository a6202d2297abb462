#pragma once

// Batches of matrices of any size in global memory: products in tiles of 64 x 64, and elementwise
// passes. Small structs describe the operands of a product, so that a transpose, symmetric part or
// scaling needs no pass of its own.

#include <cstdint>

#include "cuda/launch/launch.h"
#include "cuda/matrix/product.cuh"
#include "keel/matrices.h"

namespace keel::cuda::large {

template <typename T>
struct Plain {
  static constexpr bool kAlongRows = true;  ///< adjacent entries of a row are adjacent in memory
  Matrices<const T> m;
  __device__ T operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return m[b][i * m.row_stride + j];
  }
};
template <typename T>
struct Transposed {
  static constexpr bool kAlongRows = false;
  Matrices<const T> m;
  __device__ T operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return m[b][j * m.row_stride + i];
  }
};
template <typename T>
struct SymmetricPart {
  static constexpr bool kAlongRows = true;
  Matrices<const T> m;
  __device__ T operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return T(0.5) * m[b][i * m.row_stride + j] + T(0.5) * m[b][j * m.row_stride + i];
  }
};
template <typename T>
struct FromLower {
  static constexpr bool kAlongRows = true;
  Matrices<const T> m;
  __device__ T operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return i >= j ? m[b][i * m.row_stride + j] : m[b][j * m.row_stride + i];
  }
};
template <typename T>
struct ScaledColumns {
  static constexpr bool kAlongRows = true;
  Matrices<const T> m;
  const T* factors;  ///< batch x n
  __device__ T operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return m[b][i * m.row_stride + j] * factors[b * m.n + j];
  }
};

template <typename T>
using Tile = ProductTile<T, 4>;
inline constexpr int kTile = Tile<float>::kSize, kThreads = Tile<float>::kThreads;

/// Which matrices to multiply.
struct Every {
  __device__ bool operator()(std::int64_t) const { return true; }
};

/// Each block computes one tile of `out`, each thread 4 x 4 entries. A symmetric product is
/// computed on and below the diagonal and written to both sides.
template <bool SYMMETRIC, typename T, typename Left, typename Right, typename Which>
__global__ void __launch_bounds__(kThreads)
    product_kernel(int across, int tiles, Left left, Right right, Matrices<T> out, Which which) {
  __shared__ Tile<T> product;
  const std::int64_t index = blockIdx.x / unsigned(tiles), n = out.n;
  if (!which(index)) return;
  int tile = int(blockIdx.x % unsigned(tiles)), tile_row = 0;
  if constexpr (SYMMETRIC) {
    for (; tile > tile_row; ++tile_row) tile -= tile_row + 1;
  } else {
    tile_row = tile / across;
    tile %= across;
  }
  const std::int64_t row = std::int64_t(tile_row) * kTile, column = std::int64_t(tile) * kTile;
  const int i = product.row(), j = product.column();
  T sum[4][4] = {};
  product.template multiply<Left::kAlongRows, Right::kAlongRows>(
      n, row, column, [&](std::int64_t r, std::int64_t k) { return left(index, r, k); },
      [&](std::int64_t k, std::int64_t c) { return right(index, k, c); }, sum);
  T* const target = out[index];
#pragma unroll
  for (int r = 0; r < 4; ++r)
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const std::int64_t to_row = row + i + r, to_column = column + j + s;
      if (to_row >= n || to_column >= n) continue;
      if (SYMMETRIC && to_column > to_row) continue;
      target[to_row * out.row_stride + to_column] = sum[r][s];
      if (SYMMETRIC) target[to_column * out.row_stride + to_row] = sum[r][s];
    }
}

/// out = left right.
template <bool SYMMETRIC = false, typename T, typename Left, typename Right, typename Which = Every>
void multiply(const char* operation, const Stream& stream, const Left& left, const Right& right,
              Matrices<T> out, const Which& which = {}) {
  const auto across = int((out.n + kTile - 1) / kTile);
  const int tiles = SYMMETRIC ? across * (across + 1) / 2 : across * across;
  product_kernel<SYMMETRIC, T><<<unsigned(out.batch * tiles), kThreads, 0, native(stream)>>>(
      across, tiles, left, right, out, which);
  check_launch(operation);
}

template <typename Body>
__global__ void __launch_bounds__(kThreads)
    entries_kernel(std::int64_t count, std::int64_t rows, std::int64_t columns, Body body) {
  const std::int64_t at = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at < count) body(at / (rows * columns), at / columns % rows, at % columns);
}

/// Calls body(b, i, j) for all i < rows and j < columns of every matrix.
template <typename Body>
void for_each(const char* operation, const Stream& stream, std::int64_t batch, std::int64_t rows,
              std::int64_t columns, const Body& body) {
  const std::int64_t count = batch * rows * columns;
  if (count == 0) return;
  entries_kernel<<<unsigned((count + kThreads - 1) / kThreads), kThreads, 0, native(stream)>>>(
      count, rows, columns, body);
  check_launch(operation);
}
template <typename Body>
void for_each_entry(const char* operation, const Stream& stream, std::int64_t batch, std::int64_t n,
                    const Body& body) {
  for_each(operation, stream, batch, n, n, body);
}
/// Calls body(b, 0, i) for all i < n of every matrix.
template <typename Body>
void for_each_value(const char* operation, const Stream& stream, std::int64_t batch, std::int64_t n,
                    const Body& body) {
  for_each(operation, stream, batch, 1, n, body);
}

}  // namespace keel::cuda::large
