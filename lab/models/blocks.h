#pragma once

// What the networks are made of, named inside as torchvision's are: conv1, bn1, conv2, ..., downsample.

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
#include "lab/models/norm_relu.h"
#include "lab/models/weight_gradients.h"

namespace keel::lab {

/// kernel x kernel, padded to keep the size at stride 1, kaiming_normal by fan_out.
torch::nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                              std::int64_t stride, bool bias = false);

/// Told of each layer on the way, in the order in which they compute: its name in the network, its input and
/// its output. The input is the layer's alone: its gradient is what this layer gave and no other. It is undefined
/// where branches meet (layer1.0).
using Watch = std::function<void(const std::string& layer, const torch::Tensor& input,
                                 const torch::Tensor& output)>;

/// Which layer each norm of a network is: the one under test, or BatchNorm.
struct NormPlan {
  NormOptions tested;
  std::set<std::string> names;  ///< of those under test: bn1, layer1.0.bn2, ...

  bool tests(const std::string& name) const { return names.count(name) > 0; }
  bool folds(const std::string& name) const { return tests(name) && tested.kind == "folded"; }
  std::shared_ptr<torch::nn::Module> make(const std::string& name, std::int64_t channels) const;
};

/// A convolution and the norm behind it: two children of one module.
class Normed {
 public:
  struct Shape {
    std::int64_t inputs, outputs, kernel, stride;
  };
  /// `prefix`: the owner's name in the network, with a dot. The owner outlives it.
  Normed(torch::nn::Module& owner, const std::string& prefix, const std::string& convolution,
         const std::string& norm, const Shape& shape, const NormPlan& plan);

  /// norm(convolution(input)).
  torch::Tensor forward(const torch::Tensor& input, const Watch* watch) const;
  /// max(0, that + residual). With nobody watching it is one call of norm_relu, which may be fused.
  Forked relu(const torch::Tensor& input, const torch::Tensor& residual, const Watch* watch) const;

  const std::string& norm_name() const { return norm_name_; }  ///< in the network
  const std::shared_ptr<torch::nn::Module>& norm() const { return norm_; }
  const torch::nn::Conv2d& convolution() const { return convolution_; }

  /// Who computes the gradient of a bfloat16 weight in training. Null: autograd.
  void compute_weight_gradient_with(std::shared_ptr<WeightGradients> gradients) {
    weight_gradients_ = std::move(gradients);
  }

  /// Puts the norm's evaluation into the convolution, with a bias, and nothing in the norm's place.
  void fold();

 private:
  torch::Tensor convolved(const torch::Tensor& input) const;
  torch::Tensor convolved_in_training(const torch::Tensor& input) const;
  torch::Tensor watched(const torch::Tensor& input, const Watch& watch) const;

  torch::nn::Module* owner_;
  std::string convolution_child_, norm_child_, convolution_name_, norm_name_;
  torch::nn::Conv2d convolution_{nullptr};
  std::shared_ptr<torch::nn::Module> norm_;
  std::shared_ptr<WeightGradients> weight_gradients_;
};

/// A residual block: 3x3 and 3x3, or (bottleneck) 1x1, 3x3 and 1x1 to kExpansion times the width; the first 3x3 takes the
/// stride. Where the shape changes, the shortcut is a 1x1 convolution with a norm.
class BlockImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;
  struct Shape {
    std::int64_t inputs, width, stride;
    bool bottleneck;

    std::int64_t outputs() const { return bottleneck ? kExpansion * width : width; }
    bool has_shortcut() const { return stride != 1 || inputs != outputs(); }
    /// Of its convolutions but the shortcut's, each followed by a norm.
    std::vector<Normed::Shape> chain() const;
  };

  /// `name`: in the network.
  BlockImpl(const std::string& name, const Shape& shape, const NormPlan& plan);
  Forked forward(const Forked& input, const Watch* watch = nullptr);
  /// In the order of the data; the shortcut's last.
  std::vector<Normed*> normed();

 private:
  const std::string name_;
  std::vector<Normed> chain_;
  std::shared_ptr<torch::nn::Module> downsample_;
  std::optional<Normed> shortcut_;
};
TORCH_MODULE(Block);

}  // namespace keel::lab
