#pragma once

#include "keel/running_average.h"
#include "shape.h"

namespace keel {

/// Argument checks of both backends of running_average.
template <typename T>
void check_running_average(const char* operation, const Matrices<const T>& covariance,
                           const Matrices<const T>& layer_matrix,
                           const RunningStatistics<T>& running) {
  require_given(operation, "covariance", covariance);
  require_same_shape(operation, "layer_matrix", covariance, layer_matrix);
  require_same_shape(operation, "running.matrix", covariance, running.matrix);
}

}  // namespace keel
