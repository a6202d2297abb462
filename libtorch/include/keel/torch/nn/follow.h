#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "keel/torch/nn/process_group.h"

namespace keel::nn {

struct FollowOptions {
  /// How much work a look at a batch may be, as a share of the map's own in that training step. It decides how many
  /// output positions are looked at. Empty means all.
  std::optional<double> share = 0.1;
  std::int64_t every = 8;  ///< batches from one look to the next
  /// For your own norms with the buffers running_mean and running_var, as in RecalibrateOptions.
  std::function<std::optional<double>*(torch::nn::Module&)> momentum_of = {};
  ProcessGroup process_group = {};  ///< of the norm, if it has no such option itself
};

/// Makes a norm's running statistics from those of the input of the convolution or linear layer before it (the map), at
/// the map's present weights, so that they do not lag behind the weights while the model trains:
///
///     keel::nn::Following following(conv.ptr(), norm.ptr());
///     following.observe(x);  // x, the input of conv, in each training step
///     following.refresh();   // before evaluation, fold_into or saving
///
/// With the mean m and covariance C of the map's input patches and its matrix W, the norm's input has mean W m + bias and
/// covariance W C W^T, which is computed in float64 (docs/mathematics.md). The object holds m and C, and keeps both
/// modules alive.
///
/// - Maps are exactly Conv1d, Conv2d, Conv3d and Linear; norms are whitening layers and torch's BatchNorm1d, 2d and 3d.
///   Others are an error. A map that is called for several norms cannot be followed.
/// - A batch with NaN, infinity or squares that overflow is left out. Nothing waits for the device.
/// - With the norm's process group the batches of all processes count, and all must call observe() in the same steps.
class Following {
 public:
  Following(std::shared_ptr<torch::nn::Module> map, std::shared_ptr<torch::nn::Module> norm,
            const FollowOptions& options = {});

  /// Looks at the map's input in each `every`-th call, if the norm is in training mode.
  void observe(const torch::Tensor& input);
  /// Looks at it in this call. A CUDA graph repeats what was captured: capture one step with a look and one without.
  void look(const torch::Tensor& input);
  /// Writes the norm's running statistics. Before the first look it changes nothing. `outputs` is the type of the map's
  /// outputs in evaluation: of Half and BFloat16 (autocast) the statistics include the rounding of weights and outputs.
  void refresh(at::optional<at::ScalarType> outputs = {}) const;

  torch::Tensor
      input_mean;  ///< (blocks, K): blocks of channels that the map and the norm treat on their own
  torch::Tensor input_covariance;  ///< (blocks, K, K)
  torch::Tensor looks;             ///< int64, the number of batches averaged so far

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
  FollowOptions options_;
  std::int64_t steps_ = 0;
};

}  // namespace keel::nn
