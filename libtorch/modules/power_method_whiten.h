#pragma once

#include "keel/torch/nn/process_group.h"
#include "keel/torch/power_method.h"
#include "keel/torch/whiten.h"

namespace keel::nn {

/// keel::whiten with the power method's eigenvectors, differentiated by unrolling it: the baseline.
Whitened power_method_whiten(const torch::Tensor& input, const torch::Tensor& weight,
                             const torch::Tensor& bias, std::int64_t groups, const SubspaceMap& map,
                             const PowerMethod& method, const ProcessGroup& processes);

}  // namespace keel::nn
