#pragma once

#include "keel/torch/nn/process_group.h"
#include "keel/torch/whiten.h"

namespace keel::nn {

/// keel::whiten with the mean and covariance of all processes' samples. A process may have no samples. Takes one
/// all-reduce in forward (two in float64) and one in backward.
///
/// The input's gradient is that of the sum of all processes' losses. The gradients of weight and bias are this process's
/// share of it, as for every parameter of a data-parallel model.
Whitened synchronised_whiten(const torch::Tensor& input, const torch::Tensor& weight,
                             const torch::Tensor& bias, std::int64_t groups, const LayerMap& map,
                             const SpectralRule& rule, bool relu, const torch::Tensor& residual,
                             const ProcessGroup& group);

}  // namespace keel::nn
