#pragma once

#include "keel/eigh.h"

namespace keel::cuda {

/// For n <= 4, one thread per matrix. For batches that are large enough to fill the GPU this way.
template <typename T>
void eigh_tiny(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
               EighStatus* status, const Stream& stream);

}  // namespace keel::cuda
