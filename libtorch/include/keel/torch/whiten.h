#pragma once

#include <torch/types.h>

#include <cstdint>

#include "keel/layer_matrix.h"

namespace keel {

struct Whitened {
  torch::Tensor output;        ///< as the input: the only differentiable output
  torch::Tensor mean;          ///< (C)
  torch::Tensor covariance;    ///< (G, d, d), divided by the number of samples
  torch::Tensor layer_matrix;  ///< (G, d, d)
  torch::Tensor values;        ///< (G, d), eigenvalues of the map's M in the order found
  torch::Tensor rank;          ///< (G), int64
};

/// A whitening layer's training step on (N, C, *) activations: moments, layer_matrix, affine.
///
///     output = weight * (layer_matrix (input - mean)) + bias
///
/// `weight` and `bias` (C) may be left out. Backward reads the input again and keeps nothing else of
/// the activations' size. Differentiable once.
Whitened whiten(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                std::int64_t groups, const LayerMap& map, const SpectralRule& rule = Exact{});

}  // namespace keel
