#pragma once

#include "keel/eigh.h"

namespace keel::cuda {

/// eigh by cuSOLVER's batched solver, for what does not fit on one multiprocessor. Vectors that it does not
/// return orthonormal are mended.
template <typename T>
void eigh_large(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighStatus* status,
                const Stream& stream);

}  // namespace keel::cuda
