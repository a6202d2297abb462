#pragma once

#include "keel/track.h"
#include "shape.h"

namespace keel {

/// What both twins of track ask of their arguments.
template <typename T>
void check_track(const char* operation, const Matrices<const T>& covariance,
                 const Matrices<const T>& subspace, const RunningStatistics<T>& running) {
  require_same_shape(operation, "subspace", covariance, subspace);
  require_same_shape(operation, "running.subspace", covariance, running.subspace);
}

}  // namespace keel
