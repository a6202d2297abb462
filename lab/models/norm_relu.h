#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

namespace keel::lab {

/// An activation that is used twice, by a block and by its shortcut. If a fused norm computed it, `past` is the same
/// memory with its own gradient, and the norm's backward adds the two gradients while reading them. Otherwise `past`
/// is undefined.
struct Forked {
  torch::Tensor through, past;
};

/// max(0, norm(input) + residual) for any layer of make_norm. A fused BatchNorm (fused_norm.h) makes two passes over
/// the activations, without intermediate rounding. Otherwise norm, addition and ReLU run one after another.
Forked norm_relu(torch::nn::Module& norm, const torch::Tensor& input,
                 const torch::Tensor& residual = {});

}  // namespace keel::lab
