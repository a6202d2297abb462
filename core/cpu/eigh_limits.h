#pragma once

#include "keel/eigh.h"

namespace keel::cpu {

/// QL needs about two sweeps an eigenvalue, more only inside clusters of rounding noise; a matrix
/// that needs more than this goes to the fallback. A header of its own so that the tests can reach
/// the fallback.
struct EighLimits {
  int max_sweeps = 200;
};

template <typename T>
void eigh(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
          EighStatus* status, const Executor& executor, EighLimits limits);

}  // namespace keel::cpu
