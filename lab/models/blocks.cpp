#include "lab/models/blocks.h"

#include "lab/models/norm_relu.h"

namespace keel::lab {
namespace {

using torch::Tensor;
using torch::nn::Conv2d;
using torch::nn::Sequential;

/// The shortcut of a block that changes the shape; empty where it does not.
Sequential shortcut(std::int64_t inputs, std::int64_t outputs, std::int64_t stride) {
  if (stride == 1 && inputs == outputs) return nullptr;
  return Sequential(convolution(inputs, outputs, 1, stride), BatchNorm(outputs));
}

/// A shortcut's convolution, 1x1, reads the pixels that its stride leaves. On the CPU they are taken out before it: with
/// AVX2, in channels_last order and with channels no multiple of 8, oneDNN 2.6 writes past its buffer doing so itself.
Tensor convolved(torch::nn::Conv2dImpl& convolution, const Tensor& input) {
  using torch::indexing::None, torch::indexing::Slice;
  const std::int64_t stride = convolution.options.stride()->at(0);
  if (!input.is_cpu() || stride == 1) return convolution.forward(input);
  const Slice all, kept(None, None, stride);
  return torch::conv2d(input.index({all, all, kept, kept}), convolution.weight);
}

/// A block's last norm, the shortcut added to it, and ReLU.
Tensor joined(BatchNorm& norm, const Tensor& branch, const Tensor& input, Sequential& downsample) {
  if (downsample.is_empty()) return norm_relu(*norm, branch, input);
  const Tensor straight = convolved(downsample->at<torch::nn::Conv2dImpl>(0), input);
  return norm_relu(*norm, branch, downsample->at<BatchNormImpl>(1).forward(straight));
}

}  // namespace

Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                   std::int64_t stride, bool bias) {
  Conv2d result(torch::nn::Conv2dOptions(inputs, outputs, kernel)
                    .stride(stride)
                    .padding(kernel / 2)
                    .bias(bias));
  torch::nn::init::kaiming_normal_(result->weight, 0, torch::kFanOut, torch::kReLU);
  return result;
}

BasicBlockImpl::BasicBlockImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride) {
  conv1_ = register_module("conv1", convolution(inputs, width, 3, stride));
  bn1_ = register_module("bn1", BatchNorm(width));
  conv2_ = register_module("conv2", convolution(width, width, 3, 1));
  bn2_ = register_module("bn2", BatchNorm(width));
  downsample_ = shortcut(inputs, width, stride);
  if (!downsample_.is_empty()) register_module("downsample", downsample_);
}

Tensor BasicBlockImpl::forward(const Tensor& input) {
  const Tensor hidden = norm_relu(*bn1_, conv1_(input));
  return joined(bn2_, conv2_(hidden), input, downsample_);
}

BottleneckImpl::BottleneckImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride) {
  const std::int64_t outputs = kExpansion * width;
  conv1_ = register_module("conv1", convolution(inputs, width, 1, 1));
  bn1_ = register_module("bn1", BatchNorm(width));
  conv2_ = register_module("conv2", convolution(width, width, 3, stride));
  bn2_ = register_module("bn2", BatchNorm(width));
  conv3_ = register_module("conv3", convolution(width, outputs, 1, 1));
  bn3_ = register_module("bn3", BatchNorm(outputs));
  downsample_ = shortcut(inputs, outputs, stride);
  if (!downsample_.is_empty()) register_module("downsample", downsample_);
}

Tensor BottleneckImpl::forward(const Tensor& input) {
  Tensor hidden = norm_relu(*bn1_, conv1_(input));
  hidden = norm_relu(*bn2_, conv2_(hidden));
  return joined(bn3_, conv3_(hidden), input, downsample_);
}

}  // namespace keel::lab
