#pragma once

#include <torch/types.h>

namespace keel {

/// matrix (input - center) + bias for (N, C, *) activations: `matrix` (G, d, d) holds one block for
/// each run of d channels, `center` and `bias` (C) may be left out. In one pass; the output has the
/// input's type and memory format. Differentiable in all four, to any order.
torch::Tensor affine(const torch::Tensor& input, const torch::Tensor& matrix,
                     const torch::Tensor& center = {}, const torch::Tensor& bias = {});

}  // namespace keel
