#pragma once

// Copies between a caller's matrix and the padded scratch memory of Kernels::multiply. Columns
// beyond n are kept zero: they take part in the products and must not hold NaN or denormals.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels.h"

namespace keel::cpu {

template <typename T>
void clear_padding(std::int64_t n, T* to) {
  const std::int64_t stride = padded<T>(n);
  for (std::int64_t i = 0; i < n; ++i) std::fill(to + i * stride + n, to + (i + 1) * stride, T(0));
}

template <typename T>
void load(std::int64_t n, const T* from, std::int64_t row_stride, T* to) {
  for (std::int64_t i = 0; i < n; ++i)
    std::copy(from + i * row_stride, from + i * row_stride + n, to + i * padded<T>(n));
}

template <typename T>
void transpose(std::int64_t n, const T* from, T* to) {
  const std::int64_t stride = padded<T>(n);
  constexpr std::int64_t kTile = 16;
  for (std::int64_t row = 0; row < n; row += kTile)
    for (std::int64_t column = 0; column < n; column += kTile)
      for (std::int64_t i = row; i < std::min(n, row + kTile); ++i)
        for (std::int64_t j = column; j < std::min(n, column + kTile); ++j)
          to[j * stride + i] = from[i * stride + j];
}

/// a <- (a + a^T) / 2, symmetric to the last bit.
template <typename T>
void symmetrise(std::int64_t n, T* a) {
  const std::int64_t stride = padded<T>(n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j)
      a[i * stride + j] = a[j * stride + i] =
          T(0.5) * a[i * stride + j] + T(0.5) * a[j * stride + i];
}

template <typename T>
void store(std::int64_t n, const T* from, T* to, std::int64_t row_stride) {
  for (std::int64_t i = 0; i < n; ++i)
    std::copy(from + i * padded<T>(n), from + i * padded<T>(n) + n, to + i * row_stride);
}

template <typename T>
void store_nan(std::int64_t n, T* to, std::int64_t row_stride) {
  for (std::int64_t i = 0; i < n; ++i)
    std::fill(to + i * row_stride, to + i * row_stride + n, std::numeric_limits<T>::quiet_NaN());
}

template <typename T>
T largest_magnitude(std::int64_t n, const T* values,
                    T floor = -std::numeric_limits<T>::infinity()) {
  T largest = 0;
  for (std::int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::abs(std::max(values[i], floor)));
  return largest;
}

}  // namespace keel::cpu
