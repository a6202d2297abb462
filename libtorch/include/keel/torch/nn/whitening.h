#pragma once

// The base of the whitening layers. A layer is moments -> layer_matrix -> affine. Layers differ only in the middle step.

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "keel/layer_matrix.h"
#include "keel/torch/nn/process_group.h"
#include "keel/torch/whiten.h"

namespace keel::nn {

/// The function that a layer applies to its output in the same pass.
enum class Activation {
  none,
  relu,  ///< max(0, output), and NaN stays NaN
};

/// The options of every whitening layer, for designated initialisers:
///     keel::nn::ZcaWhitening layer({.num_features = 64, .group_size = 16});
struct WhiteningOptions {
  std::int64_t num_features = 0;  ///< C, the number of channels
  /// d, the number of channels that are whitened together, or the number of such groups, C / d. If both are empty, all
  /// channels form one group. If both are given, they must agree.
  std::optional<std::int64_t> group_size = std::nullopt;
  std::optional<std::int64_t> groups = std::nullopt;
  double eps = 1e-4;  ///< added to the covariance's diagonal
  /// The weight of the new batch in the running statistics. Empty means the plain average of all steps.
  std::optional<double> momentum = 0.1;
  bool affine = true;               ///< learn a weight and a bias for each channel
  bool track_running_stats = true;  ///< if false, evaluation uses batch statistics too
  SpectralRule rule = Exact{};      ///< the gradient rule of the eigendecomposition
  std::optional<RankPolicy> rank = std::nullopt;  ///< empty: the layer's own default
  /// Applied to the output without an extra pass. Outputs and gradients are bitwise those of the layer followed by the
  /// function. May be set at any time.
  Activation activation = Activation::none;
  /// The processes whose batches form one batch in training. All of them must take every step, forward and backward, but
  /// some may have no samples. The default is this process alone.
  ProcessGroup process_group = {};
};

class Recalibration;

/// A norm layer. The output has the input's shape (N, C, *), type and memory format.
///
/// - Training, and evaluation without running statistics, uses the batch's statistics. Otherwise evaluation uses the
///   running ones. Both can be differentiated.
/// - Non-finite batch statistics make the output NaN and leave the running statistics and num_batches_tracked unchanged.
///   The device decides this, without a synchronisation.
/// - float16 and bfloat16 activations have float32 statistics.
/// - With a process group, training uses the statistics of all processes' samples. Batch and running statistics are
///   bitwise the same in each process. Evaluation never communicates, not even without running statistics. The gradients
///   of weight and bias are this process's share of the sum.
class WhiteningImpl : public torch::nn::Module {
 public:
  torch::Tensor forward(const torch::Tensor& input);
  /// forward() with `activation` instead of the options' one. `residual`, if defined, is added before the activation.
  torch::Tensor forward_then(Activation activation, const torch::Tensor& input,
                             const torch::Tensor& residual = {});

  /// Sets weight to 1 and bias to 0, and calls reset_running_stats().
  void reset_parameters();
  /// Resets the statistics to mean 0, variance 1 and the identity matrix, with no batch seen.
  void reset_running_stats();

  /// How many eigenvalues of each group the last step on batch statistics kept: (G), int64, on the input's device.
  /// Undefined before the first such step.
  torch::Tensor kept() const { return kept_; }
  /// That step's eigenvalues (G, d) of the decomposed matrix, descending and as found (rounding may put some below eps),
  /// and its covariance (G, d, d).
  torch::Tensor eigenvalues() const { return eigenvalues_; }
  torch::Tensor covariance() const { return covariance_; }

  /// This layer in evaluation as a plain convolution. It must be in eval mode, with running statistics and without an
  /// activation.
  torch::nn::Conv2d as_conv1x1() const;
  /// A copy of `before`, the layer in front of this one, that computes both in evaluation. No group of this layer may span
  /// two groups of the convolution. `before` must be exactly that class, with a weight and a bias at most. A subclass, or a
  /// module with other parameters, buffers or submodules, is an error.
  torch::nn::Conv1d fold_into(const torch::nn::Conv1d& before) const;
  torch::nn::Conv2d fold_into(const torch::nn::Conv2d& before) const;
  torch::nn::Conv3d fold_into(const torch::nn::Conv3d& before) const;
  torch::nn::Linear fold_into(const torch::nn::Linear& before) const;

  void pretty_print(std::ostream& stream) const override;
  using torch::nn::Module::to;
  void to(torch::Device device, torch::Dtype type, bool non_blocking = false) override;
  void to(torch::Dtype type, bool non_blocking = false) override;

  /// As given, with groups, group_size and rank filled in.
  WhiteningOptions options;

  torch::Tensor weight, bias;         ///< (C), or undefined
  torch::Tensor running_mean;         ///< (C)
  torch::Tensor running_matrix;       ///< (G, d, d)
  torch::Tensor running_variance;     ///< (C), of layers that standardise
  torch::Tensor num_batches_tracked;  ///< int64

 protected:
  // LibTorch moved from its own optional to std's. This alias works with both.
  using OptionalDevice =
      std::remove_cvref_t<decltype(std::declval<const c10::IValue&>().toOptional<c10::Device>())>;

  WhiteningImpl(std::string name, const WhiteningOptions& given, LayerMap map);

  /// The step on batch statistics, followed by `residual` and `activation`. Override it to use another decomposition.
  virtual Whitened batch_step(const torch::Tensor& input, const torch::Tensor& residual,
                              Activation activation, const ProcessGroup& processes) const;

  template <typename Layer>
  std::shared_ptr<torch::nn::Module> cloned(const OptionalDevice& device) const {
    auto copy = std::make_shared<Layer>(options);
    copy->take_state(*this, device);
    return copy;
  }

 private:
  friend class Recalibration;  // restores the results of the last step
  void take_state(const WhiteningImpl& from, const OptionalDevice& device);
  void update_running_stats(const Whitened& batch);
  torch::Tensor evaluation_matrix(torch::Dtype type) const;
  void require_evaluation(const char* what) const;
  template <typename Layer>
  Layer folded(Layer after, const torch::Tensor& before_weight,
               const torch::Tensor& before_bias) const;
  template <std::size_t dimensions, typename Convolution>
  Convolution folded_convolution(const Convolution& before) const;

  LayerMap map_;
  torch::Tensor kept_, eigenvalues_, covariance_;
  bool warned_of_few_samples_ = false;
};

/// A holder as TORCH_MODULE defines it, with a constructor that takes the options in braces.
template <typename Layer>
class WhiteningHolder : public torch::nn::ModuleHolder<Layer> {
 public:
  using torch::nn::ModuleHolder<Layer>::ModuleHolder;
  using Impl = Layer;
  WhiteningHolder(const WhiteningOptions& options)
      : torch::nn::ModuleHolder<Layer>(std::make_shared<Layer>(options)) {}
};

}  // namespace keel::nn
