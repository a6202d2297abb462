#pragma once

#include "keel/stream.h"

namespace keel::cuda {

template <typename T>
struct AffineTask;

/// Runs the task if its channels fill slabs of 64 and a kernel for its group size fits this device.
/// Returns whether it did. For T that is summed in float32.
template <typename T>
bool run_on_full_slabs(const char* operation, AffineTask<T>& task, const Stream& stream);

}  // namespace keel::cuda
