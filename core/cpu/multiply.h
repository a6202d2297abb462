#pragma once

// c = a b for small square matrices: tiles of 4 rows by up to 2 vectors held in registers.

#include "kernels.h"
#include "simd.h"

namespace keel::cpu::KEEL_ISA {

template <typename T, int ROWS, int VECTORS>
inline void multiply_tile(std::int64_t n, std::int64_t stride, const T* a, const T* b, T* c) {
  Vec<T> sum[ROWS][VECTORS] = {};
  for (std::int64_t k = 0; k < n; ++k) {
    const auto* row = reinterpret_cast<const Vec<T>*>(b + k * stride);
    for (int r = 0; r < ROWS; ++r)
      for (int v = 0; v < VECTORS; ++v) sum[r][v] += a[r * stride + k] * row[v];
  }
  for (int r = 0; r < ROWS; ++r)
    for (int v = 0; v < VECTORS; ++v) reinterpret_cast<Vec<T>*>(c + r * stride)[v] = sum[r][v];
}

template <typename T, int VECTORS>
inline void multiply_columns(std::int64_t n, std::int64_t stride, const T* a, const T* b, T* c) {
  std::int64_t row = 0;
  for (; row + 4 <= n; row += 4)
    multiply_tile<T, 4, VECTORS>(n, stride, a + row * stride, b, c + row * stride);
  for (; row < n; ++row)
    multiply_tile<T, 1, VECTORS>(n, stride, a + row * stride, b, c + row * stride);
}

template <typename T>
void multiply(std::int64_t n, const T* a, const T* b, T* c) {
  const std::int64_t stride = padded<T>(n);
  std::int64_t column = 0;
  for (; column + 2 * kLanes<T> <= stride && column + kLanes<T> < n; column += 2 * kLanes<T>)
    multiply_columns<T, 2>(n, stride, a, b + column, c + column);
  for (; column < n; column += kLanes<T>)
    multiply_columns<T, 1>(n, stride, a, b + column, c + column);
}

}  // namespace keel::cpu::KEEL_ISA
