#pragma once

#include "keel/torch/whiten.h"
#include "types.h"

namespace keel::ops {

/// What both devices' kernels of whiten_forward ask of their arguments.
void check_whiten(const Tensor& input, const Optional<Tensor>& weight, const Optional<Tensor>& bias,
                  std::int64_t groups);

/// And those of whiten_backward. Returns the number of groups.
std::int64_t check_whiten_backward(const Tensor& grad_output, const Tensor& input,
                                   const Optional<Tensor>& weight, const Tensor& mean,
                                   const Tensor& covariance, const Tensor& subspace,
                                   const Tensor& values, const Tensor& vectors, const Tensor& rank);

/// keel::whiten with the variance left undefined: it is the covariance's diagonal, and a layer needs
/// no copy of that.
Whitened whitened(const torch::Tensor& input, const torch::Tensor& weight,
                  const torch::Tensor& bias, std::int64_t groups, const SubspaceMap& map,
                  const SpectralRule& rule);

}  // namespace keel::ops
