#pragma once

#include "keel/eigh.h"

namespace keel::cuda {

/// The largest matrix that eigh_wide takes.
inline constexpr std::int64_t kLargestWide = 2048;

/// Whether eigh_wide takes matrices of this size on this device.
template <typename T>
bool is_wide(std::int64_t n);

/// eigh with each matrix spread over several multiprocessors, in four launches plus five for each
/// level of merges.
template <typename T>
void eigh_wide(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
               EighStatus* status, const Stream& stream);

}  // namespace keel::cuda
