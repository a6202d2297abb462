#pragma once

#include "keel/scale.h"
#include "shape.h"

namespace keel {

/// What both twins of scale_backward ask of their arguments.
template <typename T>
void check_scale_backward(const char* operation, const Matrices<const T>& subspace,
                          const Matrices<const T>& cross, const Matrices<T>& dL_dsubspace,
                          const Matrices<T>& matrix) {
  require_same_shape(operation, "cross", subspace, cross);
  require_same_shape(operation, "dL_dsubspace", subspace, dL_dsubspace);
  require_same_shape(operation, "matrix", subspace, matrix);
}

}  // namespace keel
