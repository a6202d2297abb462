#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <optional>

#include "keel/torch/nn/process_group.h"

namespace keel::lab {

/// torch's BatchNorm2d for a batch that may be spread over several processes. Mean and variance are then those of the
/// whole batch, and all processes have bitwise the same running statistics. With one process, and in evaluation, it
/// is bitwise BatchNorm2d. (It does not derive from BatchNorm2dImpl, because LibTorch does not export everything this
/// would need.)
class BatchNormImpl : public torch::nn::Module {
 public:
  explicit BatchNormImpl(std::int64_t channels, double momentum = 0.1, double eps = 1e-5);

  /// Every process must have at least one sample of the batch.
  torch::Tensor forward(const torch::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

  std::optional<double> momentum;  ///< empty: running statistics are plain averages of all batches
  const double eps;
  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  keel::nn::ProcessGroup processes;
  bool fused = false;      ///< use fused_norm.h on a GPU if it supports the call
  torch::Tensor barriers;  ///< grid barriers of the fused kernels

 private:
  /// A training step of several processes.
  torch::Tensor shared(const torch::Tensor& input);
  /// Updates the running statistics with those of a batch. Never synchronises.
  void track(const torch::Tensor& mean, const torch::Tensor& variance);
};
TORCH_MODULE(BatchNorm);

/// The module's momentum if it is a BatchNorm, otherwise null: for recalibrating and following.
std::optional<double>* momentum_of(torch::nn::Module& module);

/// Sets the process group of all whitening layers and, with `batch_norms`, of BatchNorm.
void share_batches(torch::nn::Module& network, const keel::nn::ProcessGroup& processes,
                   bool batch_norms);

}  // namespace keel::lab
