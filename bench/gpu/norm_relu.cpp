// A norm and the ReLU behind it, in a graph: whitening with ReLU inside beside torch's BatchNorm2d and ReLU, and
// the same layer with ReLU apart.

#include <fmt/format.h>

#include "activations.h"
#include "cases.h"
#include "keel/torch/keel.h"

namespace keel::bench {
namespace {

/// Forward, and backward to input, weight and bias.
template <typename Module>
std::function<void()> step(const std::shared_ptr<Module>& module, const torch::Tensor& input,
                           const std::function<torch::Tensor(const torch::Tensor&)>& forward) {
  const torch::Tensor x = input.detach().requires_grad_(true);
  const torch::Tensor slope = torch::randn_like(input);
  return captured([=] {
    torch::autograd::grad({forward(x)}, {x, module->weight, module->bias}, {slope});
  });
}

void measure(Record& record, at::ScalarType type, bool channels_last, std::int64_t d) {
  const torch::Tensor x = layer_activations(type, channels_last);
  const auto norm = std::make_shared<torch::nn::BatchNorm2dImpl>(kLayerChannels);
  const auto layer = std::make_shared<nn::ZcaWhiteningImpl>(
      nn::WhiteningOptions{.num_features = kLayerChannels, .group_size = d});
  norm->to(kLayerDevice);
  layer->to(kLayerDevice);
  using torch::Tensor;
  const std::vector<Peer> peers{
      {"keel", step(layer, x,
                    [=](const Tensor& t) { return layer->forward_then(nn::Activation::relu, t); })},
      {"keel, ReLU apart",
       step(layer, x, [=](const Tensor& t) { return layer->forward(t).relu(); })},
      {"keel alone", step(layer, x, [=](const Tensor& t) { return layer->forward(t); })},
      {"BatchNorm2d + ReLU",
       step(norm, x, [=](const Tensor& t) { return norm->forward(t).relu(); })}};
  const Microseconds times = in_turns(peers);
  const std::string name =
      fmt::format("norm + ReLU/zca {}{}/d={}/graph", type == at::kFloat ? "float32" : "bfloat16",
                  channels_last ? " channels_last" : "", d);
  record.add(name, times);
  if (d == 16)
    record.at_most(name + ", over BatchNorm2d + ReLU",
                   times.at("keel") / times.at("BatchNorm2d + ReLU"), 0.7);
}

}  // namespace

void measure_norm_relu(Record& record) {
  record.section("norm + ReLU on (128, 64, 32, 32), forward + backward, us (ratio to keel)");
  for (const std::int64_t d : {16, 64, 4})
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
      for (const bool channels_last : {false, true}) measure(record, type, channels_last, d);
  record.write();
}

}  // namespace keel::bench
