#pragma once

#include <utility>

#include "keel/weight_backward.h"
#include "shape.h"

namespace keel {

/// Argument checks of both backends of weight_backward.
template <typename T>
void check_weight_backward(const char* operation, const Matrices<const T>& layer_matrix,
                           const T* sum, const Matrices<const T>& cross, const T* dL_dmean,
                           const Matrices<T>& dL_dlayer_matrix, const Matrices<T>& matrix) {
  require_given(operation, "layer_matrix", layer_matrix);
  require_same_shape(operation, "cross", layer_matrix, cross);
  require_same_shape_or_null(operation, "dL_dlayer_matrix", layer_matrix, dL_dlayer_matrix);
  require_same_shape_or_null(operation, "matrix", layer_matrix, matrix);
  if (dL_dmean != nullptr)
    require_numbers(operation, "sums", sum, layer_matrix.batch * layer_matrix.n);
  for (const auto& [name, output] :
       {std::pair("dL_dlayer_matrix", dL_dlayer_matrix), std::pair("matrix", matrix)}) {
    require_apart(operation, name, output, "layer_matrix", layer_matrix);
    require_apart(operation, name, output, "cross", cross);
  }
}

}  // namespace keel
