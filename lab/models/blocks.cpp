#include "lab/models/blocks.h"

#include <torch/nn/init.h>

#include "lab/models/batch_norm.h"

namespace keel::lab {
namespace {

using torch::Tensor;
using torch::nn::Conv2d;

/// The same values as a separate autograd tensor, which gets its own gradient.
Tensor own(const Tensor& tensor) { return tensor.view_as(tensor); }

}  // namespace

Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                   std::int64_t stride) {
  Conv2d result(torch::nn::Conv2dOptions(inputs, outputs, kernel)
                    .stride(stride)
                    .padding(kernel / 2)
                    .bias(false));
  torch::nn::init::kaiming_normal_(result->weight, 0, torch::kFanOut, torch::kReLU);
  return result;
}

std::shared_ptr<torch::nn::Module> NormPlan::make(const std::string& name,
                                                  std::int64_t channels) const {
  if (tests(name)) return make_norm(tested, channels);
  return std::make_shared<BatchNormImpl>(channels);
}

Normed::Normed(torch::nn::Module& owner, const std::string& prefix, const std::string& convolution,
               const std::string& norm, const Shape& shape, const NormPlan& plan)
    : convolution_name_(prefix + convolution), norm_name_(prefix + norm) {
  convolution_ = owner.register_module(
      convolution, lab::convolution(shape.inputs, shape.outputs, shape.kernel, shape.stride));
  norm_ = owner.register_module(norm, plan.make(norm_name_, shape.outputs));
}

/// A strided 1x1 convolution reads only every stride-th pixel. On the CPU these are extracted first, because oneDNN
/// 2.6 writes past its buffer with AVX2, channels_last order and a channel count that is not a multiple of 8.
Tensor Normed::convolved(const Tensor& input) const {
  using torch::indexing::None, torch::indexing::Slice;
  torch::nn::Conv2dImpl& layer = *convolution_.ptr();
  if (looks && following_) following_->look(input);
  const std::int64_t stride = layer.options.stride()->at(0);
  if (!input.is_cpu() || stride == 1 || layer.options.kernel_size()->at(0) != 1)
    return layer.forward(input);
  const Slice all, kept(None, None, stride);
  return torch::conv2d(input.index({all, all, kept, kept}), layer.weight);
}

Tensor Normed::forward(const Tensor& input, const Watch* watch) const {
  if (watch == nullptr) return apply_norm(*norm_, convolved(input));
  return watched(input, *watch);
}

Forked Normed::relu(const Tensor& input, const Tensor& residual, const Watch* watch) const {
  if (watch == nullptr) return norm_relu(*norm_, convolved(input), residual);
  const Tensor output = watched(input, *watch);
  return {(residual.defined() ? output + residual : output).relu(), {}};
}

Tensor Normed::watched(const Tensor& input, const Watch& watch) const {
  const Tensor before = own(input), between = convolved(before);
  watch(convolution_name_, before, between);
  const Tensor after = own(between), output = apply_norm(*norm_, after);
  watch(norm_name_, after, output);
  return output;
}

void Normed::follow(keel::nn::FollowOptions options) {
  options.momentum_of = momentum_of;
  if (auto* batch = norm_->as<BatchNormImpl>()) options.process_group = batch->processes;
  following_ = std::make_shared<keel::nn::Following>(convolution_.ptr(), norm_, options);
}

std::vector<Normed::Shape> BlockImpl::Shape::chain() const {
  if (!bottleneck) return {{inputs, width, 3, stride}, {width, width, 3, 1}};
  return {{inputs, width, 1, 1}, {width, width, 3, stride}, {width, outputs(), 1, 1}};
}

BlockImpl::BlockImpl(const std::string& name, const Shape& shape, const NormPlan& plan)
    : name_(name) {
  for (const Normed::Shape& part : shape.chain()) {
    const std::string number = std::to_string(chain_.size() + 1);
    chain_.emplace_back(*this, name + ".", "conv" + number, "bn" + number, part, plan);
  }
  if (!shape.has_shortcut()) return;
  downsample_ = register_module("downsample", std::make_shared<torch::nn::Module>("Shortcut"));
  shortcut_.emplace(*downsample_, name + ".downsample.", "0", "1", shape.shortcut(), plan);
}

Forked BlockImpl::forward(const Forked& input, const Watch* watch) {
  Tensor x = input.through;
  for (std::size_t i = 0; i + 1 < chain_.size(); ++i) x = chain_[i].relu(x, {}, watch).through;
  const Tensor past = input.past.defined() ? input.past : input.through;
  const Tensor straight = shortcut_ ? shortcut_->forward(past, watch) : past;
  const Forked output = chain_.back().relu(x, straight, watch);
  if (watch != nullptr) (*watch)(name_, {}, output.through);
  return output;
}

std::vector<Normed*> BlockImpl::normed() {
  std::vector<Normed*> all;
  for (Normed& part : chain_) all.push_back(&part);
  if (shortcut_) all.push_back(&*shortcut_);
  return all;
}

}  // namespace keel::lab
