#pragma once

#include <torch/types.h>

#include <cstdint>

namespace keel {

struct Moments {
  torch::Tensor mean;        ///< (C)
  torch::Tensor covariance;  ///< (G, d, d), divided by the number of samples
};

/// Mean and covariance of the N * prod(*) samples of (N, C, *) activations, the channels in `groups`
/// runs of d = C / G, in one pass and without a centred or transposed copy.
///
/// - Contiguous and channels_last activations are read where they lie, others are copied.
/// - float16 and bfloat16 give float32 statistics. |mean| >> deviation costs no accuracy.
/// - Differentiable to any order. Channels with NaN or infinity spoil their own entries alone.
Moments moments(const torch::Tensor& input, std::int64_t groups = 1);

}  // namespace keel
