#pragma once

#include <torch/types.h>

namespace keel {

/// matrix (input - center) + bias for (N, C, *) activations, in one pass. `matrix` (G, d, d) has one block for each run of
/// d channels. `center` and `bias` (C) may be left out. The output has the input's type and memory format. Differentiable
/// with respect to all four arguments, to any order.
torch::Tensor affine(const torch::Tensor& input, const torch::Tensor& matrix,
                     const torch::Tensor& center = {}, const torch::Tensor& bias = {});

}  // namespace keel
