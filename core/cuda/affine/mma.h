#pragma once

#include "keel/stream.h"

namespace keel::cuda {

template <typename T>
struct AffineTask;

/// Runs the task if its channels fill slabs of 64 and it has an input, and says whether it did. For T of
/// float32 sums.
template <typename T>
bool run_on_full_slabs(const char* operation, AffineTask<T>& task, const Stream& stream);

}  // namespace keel::cuda
