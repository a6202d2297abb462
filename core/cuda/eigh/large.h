#pragma once

#include "keel/eigh.h"

namespace keel::cuda {

/// Whether eigh leaves matrices of this size to cuSOLVER on this device.
template <typename T>
bool is_large(std::int64_t n);

/// eigh by cuSOLVER's batched solver, for matrices that the other kernels cannot hold. Vectors that
/// it returns not orthonormal are corrected.
template <typename T>
void eigh_large(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
                EighStatus* status, const Stream& stream);

}  // namespace keel::cuda
