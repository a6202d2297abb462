#pragma once

#include "keel/torch/nn/process_group.h"
#include "keel/torch/whiten.h"

namespace keel::nn {

/// keel::whiten with the mean and covariance of the samples of all processes, of which each has its
/// own part (or none). One all-reduce in forward (float64: two), one in backward.
///
/// The gradient of the input is that of the sum of all processes' losses. Those of weight and bias
/// are this process's share of it, as for every parameter of a data-parallel model.
Whitened synchronised_whiten(const torch::Tensor& input, const torch::Tensor& weight,
                             const torch::Tensor& bias, std::int64_t groups, const LayerMap& map,
                             const SpectralRule& rule, bool relu, const torch::Tensor& residual,
                             const ProcessGroup& group);

}  // namespace keel::nn
