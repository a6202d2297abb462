#pragma once

// BatchNorm in training, followed by addition and ReLU, as one operator on the GPU. Implemented in fused_norm_cuda.cpp if
// the build has the lab's CUDA kernels, otherwise in lab/no_kernels.cpp.

#include <torch/types.h>

#include "lab/models/batch_norm.h"
#include "lab/models/norm.h"

namespace keel::lab {

/// Whether fused_norm supports this call: `norm.fused`, training with a momentum, activations on a GPU in
/// channels_last order and of type float32 or bfloat16, and statistics of this process alone. The residual
/// may be undefined.
bool fuses(const BatchNormImpl& norm, const torch::Tensor& input, const torch::Tensor& residual);

/// norm(input) + residual, or with `relu` max(0, norm(input) + residual). Updates the running statistics as BatchNorm
/// does.
///
/// Let u = 2^-24, deviation = sqrt(variance + eps) and k = sqrt(1 + (mean / deviation)^2) of a channel, and w the
/// rows (N H W) that one warp adds up, at most 32 + rows / 4096. Then the mean is off by at most 4 u (w + k)
/// deviations and the variance by a factor of 1 +- 32 u (w + k), usually by much less. The output error is the effect
/// of these two plus half a unit in its last place.
/// NaN and infinities stay in their channel. The same input gives the same bits.
Forked fused_norm(BatchNormImpl& norm, const torch::Tensor& input, const torch::Tensor& residual,
                  bool relu);

}  // namespace keel::lab
