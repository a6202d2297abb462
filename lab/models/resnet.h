#pragma once

// Residual networks for small images: the paper's ResNet18 and ResNet50 (a first 3x3 convolution of stride 1, no
// max-pooling) and a small one for CPUs. The layer under test replaces the first norm, all norms or the named ones.
// The other norms are BatchNorm. Parameters have torchvision's names.

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lab/models/blocks.h"
#include "lab/models/norm.h"

namespace keel::lab {

struct ModelOptions {
  std::string name = "resnet18";  ///< resnet18, resnet50 or resnet_small
  std::int64_t classes = 10;      ///< >= 1
  NormOptions norm = {};          ///< the layer under test
  /// Which norms to replace: first, all, or a comma-separated list of names ("bn1,layer2.0.downsample.1"), in which
  /// * and ? stand for any characters and any one character ("layer*.bn3").
  std::string where = "first";
  /// Filters of the first convolution that start at zero, as pruned ones do: from 0 to all but one. Their output is
  /// zero for every image, so the covariance has exactly repeated eigenvalues. They stay zero, because ReLU passes no
  /// gradient at zero.
  std::int64_t dead_channels = 0;
  std::int64_t width = 8;  ///< resnet_small: channels of the first of three stages, >= 1
};

/// The names ModelOptions accepts.
const std::vector<std::string>& model_names();

/// Channels of the first norm.
std::int64_t first_channels(const ModelOptions& options);

struct NormSite {
  std::string name;  ///< the module's name: bn1, layer1.0.bn2, layer2.0.downsample.1
  std::int64_t channels;
};

/// All norms of the network, in the order of the data.
std::vector<NormSite> norm_sites(const ModelOptions& options);
/// The norms that are replaced by the layer under test. Throws keel::Error with the known names if a name is unknown.
std::vector<NormSite> tested_sites(const ModelOptions& options);

/// The network's parameters and buffers, as state_of() names them, without building it.
Shapes state_shapes(const ModelOptions& options);

/// Height (or width) of the last stage's activations for images of that `size`.
std::int64_t last_size(const ModelOptions& options, std::int64_t size);

/// Checks the options together. Throws keel::Error that names the option, the expected value and the actual one.
void validate(const ModelOptions& options);

class ResNetImpl : public torch::nn::Module {
 public:
  explicit ResNetImpl(const ModelOptions& options);

  /// (N, 3, H, W) -> (N, classes). H and W are free; the paper uses 32. `watch` is called for each layer. It does not
  /// change the output, except that a fused norm (norm_relu) skips some roundings without it.
  torch::Tensor forward(const torch::Tensor& input, const Watch* watch = nullptr);

  /// All norms, each with the convolution before it, in the order of the data.
  std::vector<Normed*> normed() const;
  /// Those that are the layer under test.
  std::vector<Normed*> tested() const;
  const torch::nn::Conv2d& first_convolution() const { return stem_->convolution(); }

  /// Whether norms use the lab's own kernels (fused_norm.h) where these support the call. At first they do not.
  void fuse_norms(bool fused);

  const ModelOptions& options() const { return options_; }

 private:
  ModelOptions options_;
  std::unique_ptr<Normed> stem_;
  std::vector<Block> blocks_;
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

}  // namespace keel::lab
