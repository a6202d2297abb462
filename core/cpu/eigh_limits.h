#pragma once

#include "keel/eigh.h"

namespace keel::cpu {

/// QL needs about two sweeps per eigenvalue, and more only inside clusters of rounding noise. A
/// matrix that needs more than this goes to the fallback. This is a separate header so that tests
/// can reach the fallback.
struct EighLimits {
  int max_sweeps = 200;
};

/// Whether a batch is solved with one matrix per lane.
template <typename T>
bool solves_in_lanes(std::int64_t n, std::int64_t batch);

template <typename T>
void eigh(Matrices<const T> matrices, RealOf<T>* values, Matrices<T> vectors, EighOrder order,
          EighStatus* status, const Executor& executor, EighLimits limits);

}  // namespace keel::cpu
