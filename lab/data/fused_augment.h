#pragma once

// augment() in one launch. Implemented in fused_augment_cuda.cpp if the build has the lab's CUDA kernels, otherwise in
// lab/no_kernels.cpp.

#include "lab/data/augment.h"

namespace keel::lab {

/// Whether fused_augment supports these tensors: contiguous and on a GPU.
bool fuses_augment(const torch::Tensor& pixels, const torch::Tensor& indices);

/// Returns bitwise the same as augment(). `key` is the hashed seed. The caller has checked the arguments.
torch::Tensor fused_augment(const torch::Tensor& pixels, const torch::Tensor& indices,
                            const torch::Tensor& epoch, std::int64_t key,
                            const AugmentOptions& options);

}  // namespace keel::lab
