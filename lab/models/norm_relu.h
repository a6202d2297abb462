#pragma once

#include <torch/types.h>

namespace keel::lab {

/// max(0, norm(input) + residual), of any layer of make_norm. Where BatchNorm is fused (fused_norm.h) that is two passes
/// over the activations and no rounding in between; elsewhere the norm, the addition and ReLU one by one.
torch::Tensor norm_relu(torch::nn::Module& norm, const torch::Tensor& input,
                        const torch::Tensor& residual = {});

}  // namespace keel::lab
