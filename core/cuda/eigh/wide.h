#pragma once

#include "keel/eigh.h"

namespace keel::cuda {

/// eigh with each matrix spread over several multiprocessors, in four launches plus five for each
/// level of merges.
template <typename T>
void eigh_wide(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
               EighStatus* status, const Stream& stream);

}  // namespace keel::cuda
