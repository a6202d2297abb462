#include "lab/models/norm_relu.h"

#include "lab/models/fused_norm.h"
#include "lab/models/norm.h"

namespace keel::lab {

using torch::Tensor;

Forked norm_relu(torch::nn::Module& norm, const Tensor& input, const Tensor& residual) {
  auto* const batch = norm.as<BatchNormImpl>();
  if (batch != nullptr && fuses(*batch, input, residual))
    return fused_norm(*batch, input, residual, /*relu=*/true);
  auto* const whitening = norm.as<keel::nn::WhiteningImpl>();
  if (whitening != nullptr)
    return {whitening->forward_then(keel::nn::Activation::relu, input, residual), {}};
  const Tensor output = apply_norm(norm, input);
  if (residual.defined()) return {(output + residual).relu_(), {}};
  // Other layers may need their output for backward, or have none of their own.
  return {batch != nullptr ? output.relu_() : output.relu(), {}};
}

}  // namespace keel::lab
