#pragma once

#include "keel/eigh.h"

namespace keel::cuda {

/// The largest matrix that eigh_middle takes. The smallest is larger than half of it.
template <typename T>
inline constexpr std::int64_t kLargestMiddle = sizeof(T) == 4 ? 256 : 128;

/// Whether eigh_middle takes matrices of this size on this device.
template <typename T>
bool is_middle(std::int64_t n);

/// eigh in four kernels, for matrices that fit into the registers of one multiprocessor but not
/// into its shared memory.
template <typename T>
void eigh_middle(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
                 EighStatus* status, const Stream& stream);

}  // namespace keel::cuda
