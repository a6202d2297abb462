#pragma once

#include "keel/activations.h"
#include "keel/stream.h"

namespace keel::cuda {

template <typename T>
struct MomentsTask;

/// Plans the sums for channels that fill slabs of 64. Returns false if they do not, or if this
/// device lacks the shared memory. After true, launch the task by multiply_on_full_slabs. For T
/// that is summed in float32.
template <typename T>
bool plan_on_full_slabs(MomentsTask<T>& task, const Activations<const T>& left,
                        const Activations<const T>& right);

template <typename T>
void multiply_on_full_slabs(const char* operation, const MomentsTask<T>& task,
                            const Stream& stream);

}  // namespace keel::cuda
