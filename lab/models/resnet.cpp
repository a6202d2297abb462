#include "lab/models/resnet.h"

#include <fmt/format.h>

#include "lab/models/blocks.h"
#include "lab/models/norm_relu.h"
#include "lab/one_of.h"

namespace keel::lab {
namespace {

struct Architecture {
  std::int64_t width;                ///< channels of the first stage, before a block's expansion
  std::vector<std::int64_t> blocks;  ///< of each stage
  bool bottleneck;
};

Architecture architecture(const ModelOptions& options) {
  if (options.name == "resnet18") return {64, {2, 2, 2, 2}, false};
  if (options.name == "resnet50") return {64, {3, 4, 6, 3}, true};
  return {options.width, {1, 1, 1}, false};
}

const ModelOptions& validated(const ModelOptions& options) {
  validate(options);
  return options;
}

torch::nn::Conv2d folded(const torch::nn::Conv2d& before, const BatchNormImpl& norm) {
  const torch::NoGradGuard no_grad;
  const auto scale = norm.weight * (norm.running_var + norm.eps).rsqrt();
  const auto& shape = before->weight.sizes();
  torch::nn::Conv2d after = convolution(shape[1], shape[0], shape[2], 1, /*bias=*/true);
  after->to(before->weight.device(), before->weight.scalar_type());
  after->weight.copy_(before->weight * scale.reshape({-1, 1, 1, 1}));
  after->bias.copy_(norm.bias - norm.running_mean * scale);
  return after;
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names{"resnet18", "resnet50", "resnet_small"};
  return names;
}

std::int64_t first_channels(const ModelOptions& options) { return architecture(options).width; }

std::int64_t last_size(const ModelOptions& options, std::int64_t size) {
  const std::size_t stages = architecture(options).blocks.size();
  for (std::size_t stage = 1; stage < stages; ++stage) size = (size + 1) / 2;
  return size;
}

void validate(const ModelOptions& options) {
  const auto expect = [](bool holds, const std::string& what, std::int64_t got) {
    require(holds, fmt::format("keel::lab::ModelOptions: expected {}, got {}", what, got));
  };
  require_one_of("keel::lab::ModelOptions", "name", options.name, model_names());
  expect(options.classes >= 1, "classes >= 1", options.classes);
  expect(options.width >= 1 && options.width <= 4096, "width from 1 to 4096", options.width);
  const std::int64_t channels = first_channels(options);
  expect(options.dead_channels >= 0 && options.dead_channels < channels,
         fmt::format("dead_channels from 0 to {} of the {} channels", channels - 1, channels),
         options.dead_channels);
  validate(options.norm, channels);
}

ResNetImpl::ResNetImpl(const ModelOptions& options)
    : Module("keel::lab::ResNet"), options_(validated(options)) {
  const Architecture plan = architecture(options_);
  const bool bias = options_.norm.kind == "folded";
  conv1_ = register_module("conv1", convolution(3, plan.width, 3, 1, bias));
  bn1_ = register_module("bn1", make_norm(options_.norm, plan.width));
  std::int64_t inputs = plan.width, width = plan.width;
  for (std::size_t stage = 0; stage < plan.blocks.size(); ++stage, width *= 2) {
    torch::nn::Sequential layer;
    for (std::int64_t block = 0; block < plan.blocks[stage]; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      if (plan.bottleneck)
        layer->push_back(Bottleneck(inputs, width, stride));
      else
        layer->push_back(BasicBlock(inputs, width, stride));
      inputs = width * (plan.bottleneck ? BottleneckImpl::kExpansion : 1);
    }
    layers_.push_back(register_module("layer" + std::to_string(stage + 1), layer));
  }
  fc_ = register_module("fc", torch::nn::Linear(inputs, options_.classes));
  if (options_.dead_channels > 0) {
    const torch::NoGradGuard no_grad;
    conv1_->weight.narrow(0, plan.width - options_.dead_channels, options_.dead_channels).zero_();
  }
}

torch::Tensor ResNetImpl::forward(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 4 && x.size(1) == 3, "keel::lab::ResNet: expected (N, 3, H, W), got ",
              x.sizes());
  x = norm_relu(*bn1_, conv1_(x));
  for (auto& layer : layers_) x = layer->forward(x);
  return fc_(x.mean({2, 3}));
}

void ResNetImpl::fold_first_norm() {
  TORCH_CHECK(!is_training(),
              "keel::lab::ResNet: expected eval mode to fold the first norm in, got "
              "training mode");
  torch::nn::Conv2d after{nullptr};
  if (const auto* whitening = bn1_->as<keel::nn::WhiteningImpl>())
    after = whitening->fold_into(conv1_);
  else if (const auto* batch = bn1_->as<BatchNormImpl>())
    after = folded(conv1_, *batch);
  else
    return;
  after->eval();
  conv1_ = replace_module("conv1", after);
  bn1_ = replace_module("bn1", std::make_shared<torch::nn::IdentityImpl>());
  options_.norm.kind = "folded";
}

}  // namespace keel::lab
