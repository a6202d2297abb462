#pragma once

#include "keel/activations.h"
#include "keel/stream.h"

namespace keel::cuda {

template <typename T>
struct MomentsTask;

/// Plans the sums for channels that fill slabs of 64, and says whether they do and this device has the shared
/// memory for it; in that case the task is to be launched with multiply_on_full_slabs. For T of float32 sums.
template <typename T>
bool plan_on_full_slabs(MomentsTask<T>& task, const Activations<const T>& left,
                        const Activations<const T>& right);

template <typename T>
void multiply_on_full_slabs(const char* operation, const MomentsTask<T>& task,
                            const Stream& stream);

}  // namespace keel::cuda
