#pragma once

#include <torch/types.h>

#include <cstdint>

#include "keel/layer_matrix.h"

namespace keel {

struct Whitened {
  torch::Tensor output;        ///< like the input; the only differentiable output
  torch::Tensor mean;          ///< (C)
  torch::Tensor covariance;    ///< (G, d, d), divided by the number of samples
  torch::Tensor layer_matrix;  ///< (G, d, d)
  torch::Tensor values;        ///< (G, d), eigenvalues of the map's M as found, in the order found
  torch::Tensor rank;          ///< (G), int64
};

/// A whitening layer's training step on (N, C, *) activations: moments, layer_matrix, affine.
///
///     output = weight * (layer_matrix (input - mean)) + bias
///
/// `weight` and `bias` (C) may be undefined. Backward reads the input again, and nothing else of the activations' size is
/// saved. Differentiable once; Zca with FullRank and Exact twice.
///
/// `residual`, of the input's shape and type, is added to the output, without intermediate rounding. Then `relu` applies
/// max(0, y), which keeps NaN, without an extra pass. Backward then saves and reads the output too, as ReLU itself does.
/// Results are bitwise those of a separate ReLU.
Whitened whiten(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                std::int64_t groups, const LayerMap& map, const SpectralRule& rule = Exact{},
                bool relu = false, const torch::Tensor& residual = {});

}  // namespace keel
