#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <optional>
#include <ranges>

namespace keel::nn {

struct RecalibrateOptions {
  bool batch_norms =
      true;  ///< also recompute torch's BatchNorm1d, 2d and 3d, not only whitening layers
  /// For your own norms: returns a pointer to the module's momentum, or null if the module is not one of them. An empty
  /// momentum must mean the plain average of all batches since num_batches_tracked was 0. The statistics are that buffer
  /// and those named running_*.
  std::function<std::optional<double>*(torch::nn::Module&)> momentum_of = {};
};

/// Recomputes the running statistics of a model's norms at the current weights, as plain averages over the batches that
/// `run` passes through the model. While a model trains, its running statistics lag behind the weights, and whitening
/// amplifies this error by up to 1/sqrt(eps) in directions of little variance.
///
/// - `run` is called once, without gradients. The norms are in training mode and everything else is in evaluation mode,
///   so there is no dropout.
/// - Afterwards modes and momenta are as before, and so are a layer's kept(), eigenvalues() and covariance(). A norm that
///   saw no batch keeps its old statistics. If `run` or a norm throws, all norms keep theirs.
/// - Statistics are written in place, so a CUDA graph of the model stays valid.
/// - Layers over several processes communicate as in training, so all processes must take the same number of batches.
void recalibrate(torch::nn::Module& model, const std::function<void()>& run,
                 const RecalibrateOptions& options = {});

/// The same for a model (a module holder or pointer) whose forward takes one tensor, with a range of tensors as batches.
template <typename Model, std::ranges::range Batches>
void recalibrate(Model& model, Batches&& batches, const RecalibrateOptions& options = {}) {
  recalibrate(
      static_cast<torch::nn::Module&>(*model),
      [&] {
        for (const torch::Tensor& batch : batches) model->forward(batch);
      },
      options);
}

}  // namespace keel::nn
