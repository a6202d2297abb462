#include "lab/models/norm_relu.h"

#include "lab/models/fused_norm.h"
#include "lab/models/norm.h"

namespace keel::lab {

using torch::Tensor;

Forked norm_relu(torch::nn::Module& norm, const Tensor& input, const Tensor& residual) {
  auto* const batch = norm.as<BatchNormImpl>();
  if (batch != nullptr && fuses(*batch, input, residual))
    return fused_norm(*batch, input, residual, /*relu=*/true);
  const Tensor output = apply_norm(norm, input);
  if (residual.defined()) return {(output + residual).relu_(), {}};
  // Only BatchNorm's output may be overwritten: other layers may need theirs for backward, or have returned their
  // input.
  return {batch != nullptr ? output.relu_() : output.relu(), {}};
}

}  // namespace keel::lab
