#pragma once

#include "keel/eigh.h"

namespace keel::cuda {

/// The largest matrix that eigh_middle takes; the smallest is one beyond half of it.
template <typename T>
inline constexpr std::int64_t kLargestMiddle = sizeof(T) == 4 ? 256 : 128;

/// Whether eigh_middle takes matrices of that size on this device.
template <typename T>
bool is_middle(std::int64_t n);

/// eigh in four kernels, for what fits into one multiprocessor's registers but not into its shared memory.
template <typename T>
void eigh_middle(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
                 EighStatus* status, const Stream& stream);

}  // namespace keel::cuda
