#pragma once

// augment() in one launch. Implemented in fused_augment_cuda.cpp if the build has the lab's CUDA kernels, otherwise in
// fused_augment_none.cpp.

#include "lab/data/augment.h"

namespace keel::lab {

/// Whether fused_augment takes these: on a GPU, contiguous.
bool fuses_augment(const torch::Tensor& pixels, const torch::Tensor& indices);

/// What augment() returns, to the last bit. `key` is that of the seed; arguments have been checked.
torch::Tensor fused_augment(const torch::Tensor& pixels, const torch::Tensor& indices,
                            const torch::Tensor& epoch, std::int64_t key,
                            const AugmentOptions& options);

}  // namespace keel::lab
