#include "lab/train/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace keel::lab {
namespace {

using torch::Tensor;

/// The result of a layer in the repeated step.
struct Layer {
  std::string name;
  bool bad_output = false, bad_gradient = false;  ///< non-finite output, non-finite input gradient
};
using Layers = std::vector<Layer>;

bool finite(const Tensor& tensor) {
  return !tensor.defined() || tensor.detach().isfinite().all().item<bool>();
}

/// For each entry, whether it is true on any process.
std::vector<bool> anywhere(const TrainingStep& training, const std::vector<bool>& here) {
  return training.processes() == nullptr ? here : training.processes()->any(here);
}

/// Whether the parameter is the layer's own, not a submodule's.
bool is_of(const std::string& parameter, const std::string& layer) {
  return parameter.substr(0, parameter.rfind('.')) == layer;
}

/// The first (or last) name that is bad on any process; empty if there is none.
std::string bad_one(std::vector<std::string> names, std::vector<bool> bad, bool last,
                    const TrainingStep& training) {
  bad = anywhere(training, bad);
  if (last) {
    std::ranges::reverse(names);
    std::reverse(bad.begin(), bad.end());
  }
  const auto found = std::ranges::find(bad, true) - bad.begin();
  return found < std::ssize(names) ? names[std::size_t(found)] : "";
}

/// The first layer with a non-finite output.
std::string layer_of_output(const Layers& layers, const TrainingStep& training) {
  std::vector<std::string> names;
  std::vector<bool> bad;
  for (const Layer& layer : layers) {
    names.push_back(layer.name);
    bad.push_back(layer.bad_output);
  }
  return bad_one(names, bad, /*last=*/false, training);
}

/// The last layer with a non-finite parameter or input gradient. The gradient of its output is finite.
std::string layer_behind(const Layers& layers, ResNet& model, const TrainingStep& training) {
  std::vector<std::string> names;
  std::vector<bool> bad;
  for (const Layer& layer : layers) {
    names.push_back(layer.name);
    bad.push_back(layer.bad_gradient);
    for (const auto& item : model->named_parameters())
      if (is_of(item.key(), layer.name) && !finite(item.value().grad())) bad.back() = true;
  }
  return bad_one(names, bad, /*last=*/true, training);
}

/// The last parameter with a non-finite gradient, so the first in backward.
std::string parameter_behind(ResNet& model, const TrainingStep& training) {
  std::vector<bool> bad;
  for (const auto& item : model->named_parameters()) bad.push_back(!finite(item.value().grad()));
  return bad_one(model->named_parameters().keys(), bad, /*last=*/true, training);
}

std::string sentence(const Failure& failure) {
  std::string text = fmt::format("step {}: the {} is not finite", failure.step, failure.where);
  if (!failure.layer.empty()) text += ", beginning in " + failure.layer;
  if (!std::isnan(failure.smallest_gap))
    text += fmt::format(" (closest eigenvalues {:.3g} apart)", failure.smallest_gap);
  return text;
}

}  // namespace

Failure diagnose(TrainingStep& training, std::int64_t step) {
  const torch::AutoGradMode with_gradients(true);
  ResNet& model = training.model();
  const Batch batch = training.selected();
  Layers layers;
  // Keep no activations, so that this needs no more device memory than training.
  const Watch watch = [&](const std::string& name, const Tensor& input, const Tensor& output) {
    const std::size_t place = layers.size();
    layers.push_back({name, !finite(output)});
    if (input.defined() && input.requires_grad())
      input.register_hook([&layers, place](const Tensor& gradient) {
        layers[place].bad_gradient = !finite(gradient);
      });
  };
  Tensor logits;
  {
    const Autocast autocast(training.device(), training.options().precision == "bfloat16");
    logits = model->forward(batch.images, &watch);
  }
  Failure failure;
  failure.step = step;
  failure.gradients = training.gradients_before_halt();
  const Tensor loss = training.loss(logits, batch.labels);
  if (anywhere(training, {!finite(loss)})[0]) {
    failure.where = "loss";
    failure.layer = layer_of_output(layers, training);
  } else {
    training.parameters().clear_gradients();
    loss.backward();
    const std::string parameter = parameter_behind(model, training);
    failure.layer = layer_behind(layers, model, training);
    failure.where = parameter.empty() ? "gradient" : "gradient of " + parameter;
    training.parameters().clear_gradients();
  }
  const LayerStates states = layer_states(model, Covariances::kWithout);
  failure.smallest_gap = smallest_gap(states);
  for (const LayerState& state : states)
    if (state.name == failure.layer) failure.smallest_gap = state.smallest_gap();
  failure.what = sentence(failure);
  return failure;
}

}  // namespace keel::lab
