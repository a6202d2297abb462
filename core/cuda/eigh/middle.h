#pragma once

#include "keel/eigh.h"

namespace keel::cuda {

/// eigh in four kernels, for matrices that fit into the registers of one multiprocessor but not
/// into its shared memory.
template <typename T>
void eigh_middle(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
                 EighStatus* status, const Stream& stream);

}  // namespace keel::cuda
