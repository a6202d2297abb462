#pragma once

#include "keel/torch/whiten.h"

namespace keel::ops {

/// keel::whiten with the variance left undefined: it is the covariance's diagonal, and a layer needs
/// no copy of that.
Whitened whitened(const torch::Tensor& input, const torch::Tensor& weight,
                  const torch::Tensor& bias, std::int64_t groups, const SubspaceMap& map,
                  const SpectralRule& rule);

}  // namespace keel::ops
