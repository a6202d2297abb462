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

/// c10d's Reducer.
std::unique_ptr<GradientSum> make_gradient_sum(const std::vector<torch::Tensor>& parameters,
                                               const BackendPointer& backend,
                                               const GroupPointer& group, SumWatch watch);

}  // namespace keel::lab
