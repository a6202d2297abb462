#pragma once

#include <torch/types.h>

#include "keel/layer_matrix.h"

namespace keel {

struct LayerMatrix {
  torch::Tensor matrix;   ///< (..., d, d): the only differentiable output
  torch::Tensor values;   ///< (..., d), eigenvalues of the map's M as found, descending
  torch::Tensor vectors;  ///< (..., d, d)
  torch::Tensor rank;     ///< (...), int64: how many leading eigenvalues were kept
};

/// The matrix a layer multiplies its centred activations by, from their covariance (..., d, d):
///
///     auto S = keel::layer_matrix(covariance, keel::Zca{.eps = 1e-4}).matrix;
///
/// The lower triangle is read, and the gradient is symmetric. Differentiable once; Zca with FullRank and Exact twice.
LayerMatrix layer_matrix(const torch::Tensor& covariance, const LayerMap& map,
                         const SpectralRule& rule = Exact{});

}  // namespace keel
