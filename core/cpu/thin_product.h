#pragma once

// The inner loops of thin_product. A tile is four rows of A times a few vectors, so a number that was loaded is used
// several times.

#include "eigh_large_kernels.h"
#include "product.h"
#include "simd.h"

namespace keel::cpu::KEEL_ISA {

/// Vectors in a tile: as many as the registers hold.
inline constexpr int kTileVectors = KEEL_VECTOR_BYTES == 64 ? 4 : 2;

/// y[c][r] += the sum over j < n of a[r][j] x[c][j], for ROWS rows and COUNT vectors.
template <typename T, int ROWS, int COUNT>
inline void thin_tile(std::int64_t n, const T* a, std::int64_t a_stride, const T* x,
                      std::int64_t x_stride, T* y, std::int64_t y_stride) {
  constexpr std::int64_t kL = kLanes<T>;
  Vec<T> sum[ROWS][COUNT] = {};
  std::int64_t j = 0;
  for (; j + kL <= n; j += kL) {
    Vec<T> row[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) row[r] = at(a + r * a_stride + j);
#pragma GCC unroll 4
    for (int c = 0; c < COUNT; ++c) {
      const Vec<T> vector = at(x + c * x_stride + j);
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) sum[r][c] += row[r] * vector;
    }
  }
  for (int r = 0; r < ROWS; ++r)
    for (int c = 0; c < COUNT; ++c) {
      T rest = sum_lanes<T>(sum[r][c]);
      for (std::int64_t k = j; k < n; ++k) rest += a[r * a_stride + k] * x[c * x_stride + k];
      y[c * y_stride + r] += rest;
    }
}

/// y[c][j] += the sum over r < ROWS of x[c][r] a[r][j], for j < n and COUNT vectors.
template <typename T, int ROWS, int COUNT>
inline void thin_left_tile(std::int64_t n, const T* a, std::int64_t a_stride, const T* x,
                           std::int64_t x_stride, T* y, std::int64_t y_stride) {
  constexpr std::int64_t kL = kLanes<T>;
  Vec<T> factor[ROWS][COUNT];
  for (int r = 0; r < ROWS; ++r)
    for (int c = 0; c < COUNT; ++c) factor[r][c] = broadcast(x[c * x_stride + r]);
  std::int64_t j = 0;
  for (; j + kL <= n; j += kL) {
    Vec<T> row[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) row[r] = at(a + r * a_stride + j);
#pragma GCC unroll 4
    for (int c = 0; c < COUNT; ++c) {
      Vec<T> sum = at(y + c * y_stride + j);
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) sum += factor[r][c] * row[r];
      put<T>(y + c * y_stride + j, sum);
    }
  }
  for (; j < n; ++j)
    for (int c = 0; c < COUNT; ++c)
      for (int r = 0; r < ROWS; ++r)
        y[c * y_stride + j] += x[c * x_stride + r] * a[r * a_stride + j];
}

/// All vectors, for ROWS rows.
template <typename T, int ROWS, bool LEFT>
inline void thin_rows(std::int64_t n, const T* a, std::int64_t a_stride, std::int64_t count,
                      const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride) {
  std::int64_t c = 0;
  for (; c + kTileVectors <= count; c += kTileVectors) {
    if constexpr (LEFT)
      thin_left_tile<T, ROWS, kTileVectors>(n, a, a_stride, x + c * x_stride, x_stride,
                                            y + c * y_stride, y_stride);
    else
      thin_tile<T, ROWS, kTileVectors>(n, a, a_stride, x + c * x_stride, x_stride, y + c * y_stride,
                                       y_stride);
  }
  for (; c < count; ++c) {
    if constexpr (LEFT)
      thin_left_tile<T, ROWS, 1>(n, a, a_stride, x + c * x_stride, x_stride, y + c * y_stride,
                                 y_stride);
    else
      thin_tile<T, ROWS, 1>(n, a, a_stride, x + c * x_stride, x_stride, y + c * y_stride, y_stride);
  }
}

/// y += x A^T, or y += x A if LEFT, for a piece of A of m rows and n columns.
template <typename T, bool LEFT>
void thin_piece(std::int64_t m, std::int64_t n, const T* a, std::int64_t a_stride,
                std::int64_t count, const T* x, std::int64_t x_stride, T* y,
                std::int64_t y_stride) {
  std::int64_t r = 0;
  for (; r + 4 <= m; r += 4)
    thin_rows<T, 4, LEFT>(n, a + r * a_stride, a_stride, count, LEFT ? x + r : x, x_stride,
                          LEFT ? y : y + r, y_stride);
  for (; r < m; ++r)
    thin_rows<T, 1, LEFT>(n, a + r * a_stride, a_stride, count, LEFT ? x + r : x, x_stride,
                          LEFT ? y : y + r, y_stride);
}

}  // namespace keel::cpu::KEEL_ISA
