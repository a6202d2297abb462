#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <optional>

#include "keel/torch/nn/process_group.h"

namespace keel::lab {

/// torch's BatchNorm2d, whose batch may be spread over several processes: then mean and variance are
/// those of all parts together, and each process has the same running statistics to the last bit. Alone,
/// and in evaluation, it computes what BatchNorm2d does, bit for bit. (LibTorch does not export all that
/// a class derived from BatchNorm2dImpl would need.)
class BatchNormImpl : public torch::nn::Module {
 public:
  explicit BatchNormImpl(std::int64_t channels, double momentum = 0.1, double eps = 1e-5);

  /// Every process must have some of the batch.
  torch::Tensor forward(const torch::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

  std::optional<double> momentum;  ///< empty: running statistics are plain averages of all batches
  const double eps;
  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  keel::nn::ProcessGroup processes;
  bool fused = false;      ///< on a GPU, where fused_norm.h can
  torch::Tensor barriers;  ///< of the fused kernels: where their blocks wait for each other

 private:
  /// A batch's statistics into the running ones; never waits for the device.
  void track(const torch::Tensor& mean, const torch::Tensor& variance);
};
TORCH_MODULE(BatchNorm);

/// All norms of the network that know how: whitening layers always, BatchNorm where `batch_norms`.
void share_batches(torch::nn::Module& network, const keel::nn::ProcessGroup& processes,
                   bool batch_norms);

}  // namespace keel::lab
