#pragma once

#include <cmath>

#include "host_device.h"

namespace keel {

/// What PCA denoising multiplies a channel by: (variance + eps)^(-1/2). Without eps a constant
/// channel gets 0, as in torch's batch normalisation. NaN stays NaN.
template <typename T>
KEEL_HOST_DEVICE inline T standard_factor(T variance, T eps) {
  const T sum = variance + eps;
  return sum == 0 ? T(0) : T(1) / std::sqrt(sum);
}

}  // namespace keel
