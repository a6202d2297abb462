#pragma once

// What the backends of polar.h share: the gradient's weight of a pair of values, and shape checks.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "host_device.h"
#include "keel/polar.h"
#include "shape.h"

namespace keel {

/// 1 / sum, or 0 if rounding cannot tell the sum of two of the `count` values from zero: the answer
/// is ambiguous there. The bound is that of the masked rule (pair_weight.h).
template <typename T>
KEEL_HOST_DEVICE inline T polar_weight(T sum, T largest, std::int64_t count) {
  const T noise = 10 * std::sqrt(T(count)) * std::numeric_limits<T>::epsilon() * largest;
  return sum > noise ? 1 / sum : T(0);
}

template <typename T, typename U>
void require_polar_shapes(const char* operation, const char* name, const Rectangles<T>& matrices,
                          PolarKind kind, const Rectangles<U>& given) {
  require_given(operation, "matrices", matrices);
  if (kind == PolarKind::rotation && matrices.rows != matrices.columns)
    throw Error(std::string(operation) + ": expected square matrices for rotations, got " +
                shape(matrices));
  require_shape(operation, name, given, matrices.batch, matrices.rows, matrices.columns);
}

template <typename T, typename U>
void check_polar_backward(const char* operation, const Rectangles<T>& matrices, PolarKind kind,
                          const Rectangles<T>& dL_dresult, const Rectangles<U>& dL_dmatrix) {
  require_polar_shapes(operation, "dL_dresult", matrices, kind, dL_dresult);
  require_polar_shapes(operation, "dL_dmatrix", matrices, kind, dL_dmatrix);
}

/// Requires that `factors` is null or has the right shape.
template <typename T, typename U>
void require_polar_factors(const char* operation, const Rectangles<T>& matrices,
                           const PolarFactors<U>& factors) {
  if (!factors) return;
  const std::int64_t k = std::min(matrices.rows, matrices.columns);
  require_shape(operation, "factors.right", factors.right, matrices.batch, k, matrices.columns);
}

/// Argument checks of every backend of polar_backward_from_factors.
template <typename T>
void check_polar_from_factors(const char* operation, const Rectangles<const T>& result,
                              const PolarFactors<const T>& factors,
                              const Rectangles<const T>& dL_dresult,
                              const Rectangles<T>& dL_dmatrix) {
  check_polar_backward(operation, result, PolarKind::orthogonal, dL_dresult, dL_dmatrix);
  if (!factors && !holds_nothing(result))
    throw Error(std::string(operation) + ": expected factors of " + shape(result) + ", got null");
  require_polar_factors(operation, result, factors);
}

}  // namespace keel
