#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

namespace keel::lab {

/// An activation that goes two ways, through a block and past it. Where a fused norm made it, `past` is the same memory with
/// a gradient of its own: the norm's backward adds the two while it reads them. Elsewhere `past` is nothing.
struct Forked {
  torch::Tensor through, past;
};

/// max(0, norm(input) + residual), of any layer of make_norm. Where BatchNorm is fused (fused_norm.h) that is two passes
/// over the activations and no rounding in between. A whitening layer has both inside. Elsewhere it is the norm,
/// the addition and ReLU one by one.
Forked norm_relu(torch::nn::Module& norm, const torch::Tensor& input,
                 const torch::Tensor& residual = {});

}  // namespace keel::lab
