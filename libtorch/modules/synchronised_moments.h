#pragma once

#include <cstdint>
#include <tuple>

#include "keel/torch/nn/process_group.h"
#include "types.h"

namespace keel::nn {

struct GlobalMoments {
  torch::Tensor mean;        ///< (C), in the activations' compute type
  torch::Tensor covariance;  ///< (G, d, d), likewise
  torch::Tensor count;       ///< (1), float64: the samples of all processes
};

/// Mean and covariance of the samples of all processes, the same on each to the last bit: one
/// all-reduce of 1 + C + C d numbers in float64. A process may have no samples. Not differentiable.
///
/// The sums are taken about zero, which all processes share without a word: in float64 that costs
/// about 2^-52 mean^2, no more than the rounding of float32 activations to begin with. For float64
/// activations an all-reduce of 1 + C numbers finds the mean first, and they are taken about that.
GlobalMoments global_moments(const torch::Tensor& input, std::int64_t groups,
                             const ProcessGroup& group);

/// The gradients of mean and covariance summed over all processes, by one all-reduce.
std::tuple<torch::Tensor, torch::Tensor> global_gradients(const torch::Tensor& dL_dmean,
                                                          const torch::Tensor& dL_dcovariance,
                                                          const ProcessGroup& group);

/// global_moments' mean and covariance, differentiable once: backward is one more all-reduce.
std::tuple<torch::Tensor, torch::Tensor> synchronised_moments(const torch::Tensor& input,
                                                              std::int64_t groups,
                                                              const ProcessGroup& group);

}  // namespace keel::nn
