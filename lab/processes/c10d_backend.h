#pragma once

#include <chrono>

#include "lab/processes/c10d_versions.h"
#include "lab/processes/collectives.h"

namespace keel::lab {

/// Gloo, for CPU tensors. Implemented in c10d_gloo.cpp, or in c10d_no_gloo.cpp without Gloo's headers.
BackendPointer gloo(const Place& place, const StorePointer& store,
                    std::chrono::milliseconds timeout);
/// NCCL, for tensors of the current CUDA device. Implemented in c10d_nccl.cpp, or in c10d_no_nccl.cpp without it.
BackendPointer nccl(const Place& place, const StorePointer& store,
                    std::chrono::milliseconds timeout);

}  // namespace keel::lab
