#pragma once

#include "keel/eigh.h"

namespace keel::cuda {

/// n <= 4, a thread a matrix, for batches that fill the card so.
template <typename T>
void eigh_tiny(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
               EighStatus* status, const Stream& stream);

}  // namespace keel::cuda
