#pragma once

#include <chrono>

#include "lab/processes/c10d_versions.h"
#include "lab/processes/place.h"

namespace keel::lab {

/// Gloo's, for CPU tensors. c10d_gloo.cpp, or c10d_no_gloo.cpp without Gloo's headers.
BackendPointer gloo(const Place& place, const StorePointer& store,
                    std::chrono::milliseconds timeout);
/// NCCL's, for tensors of the current CUDA device. c10d_nccl.cpp, or c10d_no_nccl.cpp without it.
BackendPointer nccl(const Place& place, const StorePointer& store,
                    std::chrono::milliseconds timeout);

}  // namespace keel::lab
