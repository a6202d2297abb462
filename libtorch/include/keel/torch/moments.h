#pragma once

#include <torch/types.h>

#include <cstdint>

namespace keel {

struct Moments {
  torch::Tensor mean;        ///< (C)
  torch::Tensor covariance;  ///< (G, d, d), divided by the number of samples
};

/// Mean and covariance of the N * prod(*) samples of (N, C, *) activations, in one pass and without a centred or
/// transposed copy. The channels form G = `groups` runs of d = C / G, and each run has its own covariance.
///
/// - Contiguous and channels_last activations are read in place. Others are copied.
/// - float16 and bfloat16 give float32 statistics. A mean much larger than the deviation costs no accuracy.
/// - Differentiable to any order. A channel with NaN or infinity affects only its own entries.
Moments moments(const torch::Tensor& input, std::int64_t groups = 1);

}  // namespace keel
