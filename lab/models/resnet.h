#pragma once

// Residual networks for small images: the paper's ResNet18 and ResNet50 (a 3x3 first convolution of
// stride 1, no max-pooling) and a small one for CPUs. The first norm is the layer under test, all
// others are BatchNorm. Parameters have the names torchvision gives them.

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lab/models/norm.h"

namespace keel::lab {

struct ModelOptions {
  std::string name = "resnet18";  ///< resnet18, resnet50 or resnet_small
  std::int64_t classes = 10;      ///< >= 1
  NormOptions norm = {};          ///< the first norm
  /// Filters of the first convolution that start at zero, as pruned ones do: 0 up to all but one.
  /// Their output is zero for every image, so the covariance has exactly repeated eigenvalues; and
  /// since ReLU passes no gradient at zero they stay so.
  std::int64_t dead_channels = 0;
  std::int64_t width = 8;  ///< resnet_small: channels of the first of its three stages, >= 1
};

/// The names ModelOptions takes.
const std::vector<std::string>& model_names();

/// Channels of the first norm.
std::int64_t first_channels(const ModelOptions& options);

/// Height (or width) of the last stage's activations, where the images' is `size`.
std::int64_t last_size(const ModelOptions& options, std::int64_t size);

/// Throws keel::Error naming the option, what was expected and what came.
void validate(const ModelOptions& options);

class ResNetImpl : public torch::nn::Module {
 public:
  explicit ResNetImpl(const ModelOptions& options);

  /// (N, 3, H, W) -> (N, classes). H and W are free; the paper's are 32.
  torch::Tensor forward(torch::Tensor input);

  /// The layer in place of the first norm.
  std::shared_ptr<torch::nn::Module> first_norm() const { return bn1_; }
  const torch::nn::Conv2d& first_convolution() const { return conv1_; }

  /// Puts the first norm's evaluation into the convolution before it; its kind is `folded` from then
  /// on. The network must be in eval mode.
  void fold_first_norm();

  const ModelOptions& options() const { return options_; }

 private:
  ModelOptions options_;
  torch::nn::Conv2d conv1_{nullptr};
  std::shared_ptr<torch::nn::Module> bn1_;
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

}  // namespace keel::lab
