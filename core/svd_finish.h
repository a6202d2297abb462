#pragma once

// The last steps of svd on the CPU, on row-major results: the vectors of zero values, and signs.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "shape.h"

namespace keel {

template <typename T>
void require_svd_shapes(const char* operation, Rectangles<const T> matrices, Rectangles<T> left,
                        Rectangles<T> right) {
  const std::int64_t k = std::min(matrices.rows, matrices.columns);
  if (matrices.batch < 0 || k < 0)
    throw Error(std::string(operation) + ": expected sizes >= 0, got " + shape(matrices));
  require_shape(operation, "left", left, matrices.batch, matrices.rows, k);
  require_shape(operation, "right", right, matrices.batch, k, matrices.columns);
}

template <typename T>
void svd_is_nan(std::int64_t b, std::int64_t k, T* values, Rectangles<T> left,
                Rectangles<T> right) {
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  std::fill_n(values + b * k, k, nan);
  for (const Rectangles<T>& each : {left, right})
    for (std::int64_t i = 0; i < each.rows; ++i)
      std::fill_n(each[b] + i * each.row_stride, each.columns, nan);
}

/// Replaces vector `which` by a unit vector orthogonal to all other non-zero ones. There are
/// `count` vectors of `length` entries. Entries are `step` apart, vectors `next` apart.
template <typename T>
void complete_basis(std::int64_t length, std::int64_t count, std::int64_t which, T* vectors,
                    std::int64_t step, std::int64_t next) {
  T* const mine = vectors + which * next;
  const auto fill = [&](std::int64_t unit) {
    for (std::int64_t i = 0; i < length; ++i) mine[i * step] = T(i == unit);
  };
  fill(-1);
  // Start from the axis that the others cover least. With n axes and r < n orthonormal vectors, at
  // least (n - r) / n of its squared length remains.
  std::int64_t axis = 0;
  T least = std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < length; ++i) {
    T filled = 0;
    for (std::int64_t j = 0; j < count; ++j)
      filled += vectors[j * next + i * step] * vectors[j * next + i * step];
    if (filled < least) {
      least = filled;
      axis = i;
    }
  }
  fill(axis);
  for (int pass = 0; pass < 3; ++pass) {
    for (std::int64_t j = 0; j < count; ++j) {
      if (j == which) continue;
      const T* const other = vectors + j * next;
      T dot = 0;
      for (std::int64_t i = 0; i < length; ++i) dot += other[i * step] * mine[i * step];
      for (std::int64_t i = 0; i < length; ++i) mine[i * step] -= dot * other[i * step];
    }
    T square = 0;
    for (std::int64_t i = 0; i < length; ++i) square += mine[i * step] * mine[i * step];
    const T scale = 1 / std::sqrt(square);
    for (std::int64_t i = 0; i < length; ++i) mine[i * step] *= scale;
  }
}

/// Makes the first of the largest entries of column j of `left` positive.
template <typename T>
void fix_sign(std::int64_t m, std::int64_t n, std::int64_t j, T* left, std::int64_t left_stride,
              T* right, std::int64_t right_stride) {
  T peak = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    const T x = left[i * left_stride + j];
    if (std::abs(x) > std::abs(peak)) peak = x;
  }
  const T sign = peak < 0 ? T(-1) : T(1);
  for (std::int64_t i = 0; i < m; ++i)
    left[i * left_stride + j] = sign * left[i * left_stride + j] + T(0);
  for (std::int64_t i = 0; i < n; ++i)
    right[j * right_stride + i] = sign * right[j * right_stride + i] + T(0);
}

/// Completes the vectors of zero values, which could not be normalised and were left zero.
template <typename T>
void finish_svd(std::int64_t m, std::int64_t n, const T* values, T* left, std::int64_t left_stride,
                T* right, std::int64_t right_stride) {
  const std::int64_t k = std::min(m, n);
  const auto is_zero = [](std::int64_t length, const T* vector, std::int64_t step) {
    for (std::int64_t i = 0; i < length; ++i)
      if (vector[i * step] != 0) return false;
    return true;
  };
  for (std::int64_t j = 0; j < k; ++j) {
    if (values[j] != 0) continue;
    if (is_zero(m, left + j, left_stride))
      complete_basis(m, k, j, left, left_stride, std::int64_t(1));
    if (is_zero(n, right + j * right_stride, 1))
      complete_basis(n, k, j, right, std::int64_t(1), right_stride);
    fix_sign(m, n, j, left, left_stride, right, right_stride);
  }
}

}  // namespace keel
