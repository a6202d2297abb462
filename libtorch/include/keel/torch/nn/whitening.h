#pragma once

// What the whitening layers share. A layer is moments -> layer_matrix -> affine; they differ only in the map in the
// middle.

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

/// What a layer does to its output in the same pass.
enum class Activation {
  none,
  relu,  ///< max(0, output), and NaN stays NaN
};

/// The options of every whitening layer, for designated initialisers:
///     keel::nn::ZcaWhitening layer({.num_features = 64, .group_size = 16});
struct WhiteningOptions {
  std::int64_t num_features = 0;  ///< C, the number of channels
  /// The channels that are whitened together, d, or the number of such groups, C / d. Both empty:
  /// one group of all channels. Both given: they must agree.
  std::optional<std::int64_t> group_size = std::nullopt;
  std::optional<std::int64_t> groups = std::nullopt;
  double eps = 1e-4;  ///< added to the covariance's diagonal
  /// The new value's weight in the running statistics; empty: the plain average of all steps.
  std::optional<double> momentum = 0.1;
  bool affine = true;               ///< learn a weight and a bias for each channel
  bool track_running_stats = true;  ///< otherwise batch statistics serve evaluation too
  SpectralRule rule = Exact{};      ///< the gradient rule of the eigendecomposition
  std::optional<RankPolicy> rank = std::nullopt;  ///< empty: the layer's own default
  /// The function behind the layer, in the layer: what it computes and the gradient are those of the two one behind
  /// the other, to the last bit, without passes of its own. May be set at any time.
  Activation activation = Activation::none;
  /// The processes whose batches make up one batch in training. All of them must take every step,
  /// forward and backward; some may have no samples. Empty, or of one process: this one alone.
  ProcessGroup process_group = {};
};

class Recalibration;

/// A torch norm layer: (N, C, *) in, the same out, in its type and memory format.
///
/// - Training (and evaluation without running statistics) uses the batch's statistics, evaluation
///   the running ones. Both can be differentiated.
/// - Non-finite batch statistics make the output NaN, and the running statistics and
///   num_batches_tracked keep their values for that step. This is decided on the device.
/// - float16 and bfloat16 activations have float32 statistics.
/// - With a process group, training uses the statistics of all its processes' samples, and each has
///   the same statistics, running ones too, to the last bit. Evaluation never communicates, not even
///   without running statistics. Gradients of weight and bias are this process's share of the sum.
class WhiteningImpl : public torch::nn::Module {
 public:
  torch::Tensor forward(const torch::Tensor& input);
  /// The same, and then this activation in place of the options', of the output and `residual`, if there is one.
  torch::Tensor forward_then(Activation activation, const torch::Tensor& input,
                             const torch::Tensor& residual = {});

  /// weight to 1, bias to 0, and reset_running_stats().
  void reset_parameters();
  /// Mean 0, variance 1, the matrix the identity, no batches seen.
  void reset_running_stats();

  /// How many eigenvalues of each group the last step on batch statistics kept: (G), int64, where
  /// the input was. Undefined before the first.
  torch::Tensor kept() const { return kept_; }
  /// Of that step: the eigenvalues (G, d) of the decomposed matrix, descending, and the covariance (G, d, d).
  torch::Tensor eigenvalues() const { return eigenvalues_; }
  torch::Tensor covariance() const { return covariance_; }

  /// Evaluation as a plain layer. The layer must be in eval mode and have running statistics, and no activation,
  /// which a plain layer cannot have.
  torch::nn::Conv2d as_conv1x1() const;
  /// A copy of `before` that computes both in evaluation. No group of this layer may span two groups of
  /// the convolution. `before` must be exactly that class, with weight and bias and nothing else; a
  /// derived class, or one that holds more, is an error.
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
  // LibTorch moved from its own optional to std's; this follows.
  using OptionalDevice =
      std::remove_cvref_t<decltype(std::declval<const c10::IValue&>().toOptional<c10::Device>())>;

  WhiteningImpl(std::string name, const WhiteningOptions& given, LayerMap map);

  /// The step on a batch's statistics, with `residual` and `relu` behind it. A layer with a decomposition of its own
  /// overrides it.
  virtual Whitened batch_step(const torch::Tensor& input, const torch::Tensor& residual, bool relu,
                              const ProcessGroup& processes) const;

  template <typename Layer>
  std::shared_ptr<torch::nn::Module> cloned(const OptionalDevice& device) const {
    auto copy = std::make_shared<Layer>(options);
    copy->take_state(*this, device);
    return copy;
  }

 private:
  friend class Recalibration;  // which puts back what the last step left
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

/// What TORCH_MODULE makes of an Impl, and a constructor that takes the options in braces.
template <typename Layer>
class WhiteningHolder : public torch::nn::ModuleHolder<Layer> {
 public:
  using torch::nn::ModuleHolder<Layer>::ModuleHolder;
  using Impl = Layer;
  WhiteningHolder(const WhiteningOptions& options)
      : torch::nn::ModuleHolder<Layer>(std::make_shared<Layer>(options)) {}
};

}  // namespace keel::nn
