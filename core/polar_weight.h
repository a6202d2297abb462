#pragma once

// What the backends of polar.h share: the gradient's weight of a pair of values, and the shapes' check.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "host_device.h"
#include "keel/polar.h"
#include "shape.h"

namespace keel {

/// 1 / sum, or 0 where rounding cannot tell the sum of `count` values' two from zero: there the answer is ambiguous. The
/// masked rule's bound (pair_weight.h).
template <typename T>
KEEL_HOST_DEVICE inline T polar_weight(T sum, T largest, std::int64_t count) {
  const T noise = 10 * std::sqrt(T(count)) * std::numeric_limits<T>::epsilon() * largest;
  return sum > noise ? 1 / sum : T(0);
}

template <typename T, typename U>
void require_polar_shapes(const char* operation, const char* name, const Rectangles<T>& matrices,
                          PolarKind kind, const Rectangles<U>& given) {
  if (matrices.batch < 0 || matrices.rows < 0 || matrices.columns < 0)
    throw Error(std::string(operation) + ": expected sizes >= 0, got " + shape(matrices));
  if (kind == PolarKind::rotation && matrices.rows != matrices.columns)
    throw Error(std::string(operation) + ": expected square matrices for rotations, got " +
                shape(matrices));
  if (given.batch != matrices.batch || given.rows != matrices.rows ||
      given.columns != matrices.columns)
    throw Error(std::string(operation) + ": expected " + name + " of shape " + shape(matrices) +
                ", got " + shape(given));
}

/// `factors` is null or fits.
template <typename T, typename U>
void require_polar_factors(const char* operation, const Rectangles<T>& matrices,
                           const PolarFactors<U>& factors) {
  if (!factors) return;
  const std::int64_t k = std::min(matrices.rows, matrices.columns);
  const Rectangles<U>& right = factors.right;
  if (right.batch == matrices.batch && right.rows == k && right.columns == matrices.columns) return;
  const Rectangles<U> expected{nullptr, matrices.batch, k, matrices.columns, 0, 0};
  throw Error(std::string(operation) + ": expected factors.right of shape " + shape(expected) +
              ", got " + shape(right));
}

}  // namespace keel
