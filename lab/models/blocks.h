#pragma once

// Building blocks of the networks. Submodules are named as in torchvision: conv1, bn1, conv2, ..., downsample.

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/models/norm.h"

namespace keel::lab {

/// kernel x kernel, padded to keep the size at stride 1, initialised with kaiming_normal (fan_out).
torch::nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                              std::int64_t stride);

/// Called for each layer in the order of computation, with its name in the network, its input and its output. Only
/// this layer uses the input tensor, so its gradient is this layer's alone. It is undefined where branches meet
/// (layer1.0).
using Watch = std::function<void(const std::string& layer, const torch::Tensor& input,
                                 const torch::Tensor& output)>;

/// Chooses the layer for each norm of a network: the one under test, or BatchNorm.
struct NormPlan {
  NormOptions tested;
  std::set<std::string> names;  ///< of the norms under test: bn1, layer1.0.bn2, ...

  bool tests(const std::string& name) const { return names.count(name) > 0; }
  std::shared_ptr<torch::nn::Module> make(const std::string& name, std::int64_t channels) const;
};

/// A convolution and the norm after it, both children of one module.
class Normed {
 public:
  struct Shape {
    std::int64_t inputs, outputs, kernel, stride;
  };
  /// `prefix` is the owner's name in the network, with a dot. The owner must outlive this object.
  Normed(torch::nn::Module& owner, const std::string& prefix, const std::string& convolution,
         const std::string& norm, const Shape& shape, const NormPlan& plan);

  /// norm(convolution(input)).
  torch::Tensor forward(const torch::Tensor& input, const Watch* watch) const;
  /// max(0, norm(convolution(input)) + residual). Without `watch` it is one call to norm_relu, which may be fused.
  Forked relu(const torch::Tensor& input, const torch::Tensor& residual, const Watch* watch) const;

  const std::string& norm_name() const { return norm_name_; }  ///< in the network
  const std::shared_ptr<torch::nn::Module>& norm() const { return norm_; }
  const torch::nn::Conv2d& convolution() const { return convolution_; }
  const std::string& convolution_name() const { return convolution_name_; }

  /// Lets the norm follow the convolution's weights, if it has statistics.
  void follow(keel::nn::FollowOptions options);
  /// Null if the norm does not follow.
  const std::shared_ptr<keel::nn::Following>& following() const { return following_; }
  bool looks = false;  ///< whether a forward pass shows the input to `following`

 private:
  torch::Tensor convolved(const torch::Tensor& input) const;
  torch::Tensor watched(const torch::Tensor& input, const Watch& watch) const;

  std::string convolution_name_, norm_name_;
  torch::nn::Conv2d convolution_{nullptr};
  std::shared_ptr<torch::nn::Module> norm_;
  std::shared_ptr<keel::nn::Following> following_;
};

/// A residual block: 3x3 and 3x3, or (bottleneck) 1x1, 3x3 and 1x1 with kExpansion times the width. The first 3x3 has
/// the stride. If the shape changes, the shortcut is a 1x1 convolution with a norm.
class BlockImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;
  struct Shape {
    std::int64_t inputs, width, stride;
    bool bottleneck;

    std::int64_t outputs() const { return bottleneck ? kExpansion * width : width; }
    bool has_shortcut() const { return stride != 1 || inputs != outputs(); }
    /// The shapes of its convolutions, without the shortcut's. A norm follows each.
    std::vector<Normed::Shape> chain() const;
    Normed::Shape shortcut() const { return {inputs, outputs(), 1, stride}; }
  };

  /// `name` is the block's name in the network.
  BlockImpl(const std::string& name, const Shape& shape, const NormPlan& plan);
  Forked forward(const Forked& input, const Watch* watch = nullptr);
  /// In the order of the data, the shortcut last.
  std::vector<Normed*> normed();

 private:
  const std::string name_;
  std::vector<Normed> chain_;
  std::shared_ptr<torch::nn::Module> downsample_;
  std::optional<Normed> shortcut_;
};
TORCH_MODULE(Block);

}  // namespace keel::lab
