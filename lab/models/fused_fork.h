#pragma once

// A whitening layer's output after ReLU that a block and its shortcut both use, on the GPU. Implemented in
// fused_fork_cuda.cpp if the build has the lab's CUDA kernels, otherwise in lab/no_kernels.cpp.

#include <torch/types.h>

#include "keel/torch/nn/whitening.h"
#include "lab/models/norm.h"

namespace keel::lab {

/// Whether the output of this call may be forked: training with gradients, activations on a GPU, of type float32 or
/// bfloat16, and statistics of this process alone.
bool fuses_fork(const keel::nn::WhiteningImpl& layer, const torch::Tensor& input);

/// The same memory twice, each with its own gradient. Backward adds the two and applies ReLU's mask in one pass, where
/// autograd and the layer would take one each, and rounds as they do. The layer's own mask then changes nothing.
/// Differentiable once.
Forked fused_fork(const torch::Tensor& output);

}  // namespace keel::lab
