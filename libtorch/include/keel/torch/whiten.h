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
///
/// With `relu` the output is max(0, that), NaN where it is NaN, without another pass. Backward reads the output too,
/// and keeps it, as ReLU by itself does; what comes out is the same to the last bit. A `residual`, of the input's shape and
/// type, is added before, without being rounded in between.
Whitened whiten(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                std::int64_t groups, const LayerMap& map, const SpectralRule& rule = Exact{},
                bool relu = false, const torch::Tensor& residual = {});

}  // namespace keel
