#pragma once

#include "keel/running_average.h"
#include "shape.h"

namespace keel {

/// Argument checks of both backends of running_average.
template <typename T>
void check_running_average(const char* operation, const T* mean,
                           const Matrices<const T>& covariance,
                           const Matrices<const T>& layer_matrix,
                           const RunningStatistics<T>& running) {
  require_given(operation, "covariance", covariance);
  require_same_shape(operation, "layer_matrix", covariance, layer_matrix);
  require_same_shape(operation, "running.matrix", covariance, running.matrix);
  require_apart(operation, "running.matrix", running.matrix, "layer_matrix", layer_matrix);
  require_apart(operation, "running.matrix", running.matrix, "covariance", covariance);
  const std::int64_t channels = covariance.batch * covariance.n;
  require_numbers(operation, "means", mean, channels);
  require_numbers(operation, "running means", running.mean, channels);
  require_numbers(operation, "number of batches", running.batches, 1);
}

}  // namespace keel
