#pragma once

#include "keel/eigh.h"

namespace keel::cuda {

/// eigh by cuSOLVER's batched solver, for matrices that the other kernels cannot hold. Vectors that
/// it returns not orthonormal are corrected.
template <typename T>
void eigh_large(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
                EighStatus* status, const Stream& stream);

}  // namespace keel::cuda
