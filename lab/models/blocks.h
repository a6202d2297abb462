#pragma once

// The residual blocks, named inside as torchvision's are: conv1, bn1, conv2, ..., downsample.

#include <torch/torch.h>

#include <cstdint>

#include "lab/models/batch_norm.h"

namespace keel::lab {

/// kernel x kernel, padded to keep the size at stride 1, kaiming_normal by fan_out.
torch::nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                              std::int64_t stride, bool bias = false);

/// Two 3x3 convolutions around the shortcut: `inputs` -> `width` channels.
class BasicBlockImpl : public torch::nn::Module {
 public:
  BasicBlockImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride);
  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  BatchNorm bn1_{nullptr}, bn2_{nullptr};
  torch::nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(BasicBlock);

/// 1x1, 3x3 (which takes the stride) and 1x1: `inputs` -> 4 `width` channels.
class BottleneckImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;

  BottleneckImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride);
  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  BatchNorm bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
  torch::nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(Bottleneck);

}  // namespace keel::lab
