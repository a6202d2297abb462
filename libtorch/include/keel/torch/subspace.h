#pragma once

#include <torch/types.h>

#include "keel/subspace.h"

namespace keel {

struct Subspace {
  torch::Tensor subspace;  ///< (..., d, d): the only differentiable output
  torch::Tensor values;    ///< (..., d), eigenvalues of the map's M, descending
  torch::Tensor vectors;   ///< (..., d, d)
  torch::Tensor rank;      ///< (...), int64: how many leading eigenvalues were kept
};

/// The matrix a layer multiplies its centred activations by, from their covariance (..., d, d):
///
///     auto S = keel::subspace(covariance, keel::Zca{.eps = 1e-4}).subspace;
///
/// The lower triangle is read; the gradient is the symmetric one. Differentiable once.
Subspace subspace(const torch::Tensor& covariance, const SubspaceMap& map,
                  const SpectralRule& rule = Exact{});

}  // namespace keel
