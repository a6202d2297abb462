#include <fmt/format.h>

#include "activations.h"
#include "cases.h"
#include "keel/torch/keel.h"

namespace keel::bench {
namespace {

/// Forward, and backward to input, weight and bias.
template <typename Module>
std::function<void()> step(const std::shared_ptr<Module>& module, const torch::Tensor& input) {
  const torch::Tensor x = input.detach().requires_grad_(true);
  const torch::Tensor slope = torch::randn_like(input);
  return [=] {
    const torch::Tensor y = module->forward(x);
    torch::autograd::grad({y}, {x, module->weight, module->bias}, {slope});
  };
}

struct Case {
  std::string name;
  std::int64_t d;
  bool denoising;
  at::ScalarType type;
  bool channels_last;
  double limit_ms;  ///< of forward + backward, or 0
};

const Case kCases[] = {
    {"zca float32", 64, false, at::kFloat, false, 0.5},
    {"zca float32", 16, false, at::kFloat, false, 0},
    {"zca float32", 4, false, at::kFloat, false, 0},
    {"pca_denoising e=16 float32", 64, true, at::kFloat, false, 0},
    {"zca bfloat16 channels_last", 64, false, at::kBFloat16, true, 0},
};

void measure(Record& record, const Case& c) {
  const torch::Tensor x = layer_activations(c.type, c.channels_last);
  torch::nn::BatchNorm2d norm(kLayerChannels);
  norm->to(kLayerDevice);
  std::shared_ptr<nn::WhiteningImpl> layer;
  if (c.denoising)
    layer = std::make_shared<nn::PcaDenoisingImpl>(nn::WhiteningOptions{
        .num_features = kLayerChannels, .group_size = c.d, .rank = LeadingCount{16}});
  else
    layer = std::make_shared<nn::ZcaWhiteningImpl>(
        nn::WhiteningOptions{.num_features = kLayerChannels, .group_size = c.d});
  layer->to(kLayerDevice);
  const torch::Tensor covariance = moments(x, kLayerChannels / c.d).covariance;

  const std::function<void()> own = step(layer, x), peer = step(norm.ptr(), x);
  const std::function<void()> one_eigh = [&] {
    const torch::NoGradGuard no_grad;
    keel::eigh(covariance);
  };
  for (const bool graph : {false, true}) {
    const auto mode = [&](const std::function<void()>& call) {
      return graph ? captured(call) : call;
    };
    const Microseconds times =
        in_turns({{"keel", mode(own)}, {"BatchNorm2d", mode(peer)}, {"keel eigh", mode(one_eigh)}});
    const std::string name =
        fmt::format("layer/{}/d={}/{}", c.name, c.d, graph ? "graph" : "eager");
    record.add(name, times);
    const double floor = times.at("BatchNorm2d") + times.at("keel eigh");
    record.at_most(name + ", over BatchNorm2d + one eigh", times.at("keel") / floor, 1.5);
    if (c.limit_ms > 0) record.at_most(name + ", ms", times.at("keel") / 1e3, c.limit_ms);
  }
  const double memory = double(peak_bytes(own)) / double(peak_bytes(peer));
  record.at_most(fmt::format("layer/{}/d={}, peak memory over BatchNorm2d's", c.name, c.d), memory,
                 1.05);
}

}  // namespace

void measure_layers(Record& record) {
  record.section("layers on (128, 64, 32, 32), forward + backward, us (ratio to keel)");
  for (const Case& c : kCases) measure(record, c);
  record.write();
}

}  // namespace keel::bench
