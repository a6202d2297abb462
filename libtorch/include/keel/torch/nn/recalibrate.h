#pragma once

// Recomputes running statistics at frozen weights.

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <optional>
#include <ranges>

namespace keel::nn {

struct RecalibrateOptions {
  bool batch_norms = true;  ///< torch's BatchNorm1d, 2d and 3d too; false: whitening layers alone
  /// For norms of your own: where such a module keeps its momentum, null for any other module. Empty there
  /// must mean the plain average of all batches since num_batches_tracked was 0. Its statistics are that
  /// buffer and those called running_*.
  std::function<std::optional<double>*(torch::nn::Module&)> momentum_of = {};
};

/// Recomputes the running statistics of a model's norms, as plain averages over the batches that `run` passes through
/// the model, at the current weights. While a model trains, its running statistics lag behind the weights, and
/// whitening multiplies this error by up to 1/sqrt(eps) in directions of little variance.
///
/// - `run` is called once, without gradients, with the norms in training mode and everything else in evaluation
///   mode, so without dropout.
/// - Afterwards modes and momenta are as before, and so are a layer's kept(), eigenvalues and covariance. A norm that saw no batch keeps its statistics. If `run` or a norm throws, all of them do.
/// - Statistics keep their memory: a CUDA graph that holds the model stays valid.
/// - Layers over several processes communicate as in training: all must take the same number of batches.
void recalibrate(torch::nn::Module& model, const std::function<void()>& run,
                 const RecalibrateOptions& options = {});

/// The same for a model (a module holder or pointer) whose forward takes a tensor, and a range of tensors.
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
