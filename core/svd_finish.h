#pragma once

// The last steps of svd on the CPU, on row-major results: the vectors of zero values, and signs.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "keel/matrices.h"

namespace keel {

template <typename T>
void svd_is_nan(std::int64_t b, std::int64_t k, T* values, Rectangles<T> left,
                Rectangles<T> right) {
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  std::fill_n(values + b * k, k, nan);
  for (const Rectangles<T>& each : {left, right})
    for (std::int64_t i = 0; i < each.rows; ++i)
      std::fill_n(each[b] + i * each.row_stride, each.columns, nan);
}

/// A dot product in eight sums, which the compiler keeps in vectors.
template <typename T>
T dot_in_eight(std::int64_t count, const T* x, const T* y) {
  T sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += x[i + lane] * y[i + lane];
  for (; i < count; ++i) sums[0] += x[i] * y[i];
  for (const int half : {4, 2, 1})
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

/// y -= factor x
template <typename T>
void subtract(std::int64_t count, T factor, const T* x, T* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] -= factor * x[i];
}

/// Extends `known` orthonormal vectors of `length` entries, stored one after another, to `count` of
/// them by Gram-Schmidt. Fast if few are missing.
template <typename T>
void append_a_few(std::int64_t length, std::int64_t known, std::int64_t count, T* vectors) {
  std::vector<T> filled(std::size_t(length),
                        T(0));  // the squared length of each axis in their span
  for (std::int64_t j = 0; j < count; ++j) {
    T* const mine = vectors + j * length;
    if (j >= known) {
      // Start from the axis that the others cover least. With n axes and r < n orthonormal vectors,
      // at least (n - r) / n of its squared length remains.
      std::fill_n(mine, length, T(0));
      mine[std::min_element(filled.begin(), filled.end()) - filled.begin()] = 1;
      for (int pass = 0; pass < 3; ++pass) {
        for (std::int64_t i = 0; i < j; ++i)
          subtract(length, dot_in_eight(length, vectors + i * length, mine), vectors + i * length,
                   mine);
        const T scale = 1 / std::sqrt(dot_in_eight(length, mine, mine));
        for (std::int64_t i = 0; i < length; ++i) mine[i] *= scale;
      }
    }
    for (std::int64_t i = 0; i < length; ++i) filled[std::size_t(i)] += mine[i] * mine[i];
  }
}

/// The same, fast if many are missing: the reflections that take the known vectors to axes, up to signs,
/// take the other axes to the missing vectors. The known vectors are overwritten.
template <typename T>
void append_many(std::int64_t length, std::int64_t known, std::int64_t count, T* vectors) {
  const auto reflect = [&](std::int64_t k, T* vector) {  // by I - v v^T / v_k
    const T* const v = vectors + k * length;
    subtract(length - k, dot_in_eight(length - k, v + k, vector + k) / v[k], v + k, vector + k);
  };
  for (std::int64_t k = 0; k < known; ++k) {
    T* const v = vectors + k * length;
    const T size = std::sqrt(dot_in_eight(length - k, v + k, v + k));
    const T scale = (v[k] < 0 ? T(-1) : T(1)) / size;
    for (std::int64_t i = k; i < length; ++i) v[i] *= scale;
    v[k] += 1;
    for (std::int64_t j = k + 1; j < known; ++j) reflect(k, vectors + j * length);
  }
  for (std::int64_t j = known; j < count; ++j) {
    T* const mine = vectors + j * length;
    std::fill_n(mine, length, T(0));
    mine[j] = 1;
    for (std::int64_t k = known - 1; k >= 0; --k) reflect(k, mine);
  }
}

/// Replaces the vectors that are listed as missing, of `count`, by unit vectors orthogonal to the others
/// and to each other. Entries of a vector are `step` apart, vectors `next` apart.
template <typename T>
void complete_basis(std::int64_t length, std::int64_t count,
                    const std::vector<std::int64_t>& missing, T* vectors, std::int64_t step,
                    std::int64_t next) {
  if (missing.empty()) return;
  const auto known = count - std::int64_t(missing.size());
  std::vector<T> together(std::size_t(length * count));
  std::vector<std::int64_t> order;
  for (std::int64_t j = 0; j < count; ++j)
    if (!std::binary_search(missing.begin(), missing.end(), j)) order.push_back(j);
  order.insert(order.end(), missing.begin(), missing.end());
  for (std::int64_t i = 0; i < length; ++i)
    for (std::int64_t j = 0; j < known; ++j)
      together[std::size_t(j * length + i)] = vectors[order[std::size_t(j)] * next + i * step];
  // Cost in vector operations: count^2 per missing vector, or known^2 once and 2 known per vector.
  (7 * (count - known) < count ? append_a_few<T> : append_many<T>)(length, known, count,
                                                                   together.data());
  for (std::int64_t i = 0; i < length; ++i)
    for (std::int64_t j = known; j < count; ++j)
      vectors[order[std::size_t(j)] * next + i * step] = together[std::size_t(j * length + i)];
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
  std::vector<std::int64_t> zeros, of_left, of_right;
  for (std::int64_t j = 0; j < k; ++j) {
    if (values[j] != 0) continue;
    zeros.push_back(j);
    if (is_zero(m, left + j, left_stride)) of_left.push_back(j);
    if (is_zero(n, right + j * right_stride, 1)) of_right.push_back(j);
  }
  complete_basis(m, k, of_left, left, left_stride, std::int64_t(1));
  complete_basis(n, k, of_right, right, std::int64_t(1), right_stride);
  for (const std::int64_t j : zeros) fix_sign(m, n, j, left, left_stride, right, right_stride);
}

}  // namespace keel
