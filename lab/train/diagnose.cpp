#include "lab/train/diagnose.h"

#include <fmt/format.h>

#include <cmath>

#include "lab/train/autocast.h"

namespace keel::lab {
namespace {

using torch::Tensor;
using Layers = std::vector<std::pair<std::string, Tensor>>;

bool finite(const Tensor& tensor) {
  return !tensor.defined() || tensor.detach().isfinite().all().item<bool>();
}

/// Whether this is so on any of the processes.
std::vector<bool> anywhere(const TrainingStep& training, const std::vector<bool>& here) {
  return training.processes() == nullptr ? here
                                         : training.processes()->any(here, training.device());
}

bool is_in(const std::string& parameter, const std::string& layer) {
  return parameter.rfind(layer + ".", 0) == 0;
}

/// The first layer with such an output.
std::string layer_of_output(const Layers& layers, const TrainingStep& training) {
  std::vector<bool> bad;
  for (const auto& [name, output] : layers) bad.push_back(!finite(output));
  bad = anywhere(training, bad);
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (bad[i]) return layers[i].first;
  return "";
}

/// The last layer whose own gradients or whose input's are not finite while its output's are.
std::string layer_behind(const Layers& layers, ResNet& model, const TrainingStep& training) {
  std::vector<bool> bad;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    bool good = i == 0 || finite(layers[i - 1].second.grad());
    for (const auto& item : model->named_parameters())
      if (is_in(item.key(), layers[i].first)) good = good && finite(item.value().grad());
    bad.push_back(!good);
  }
  bad = anywhere(training, bad);
  for (std::size_t i = layers.size(); i-- > 0;)
    if (bad[i]) return layers[i].first;
  return "";
}

/// The first on the gradient's way.
std::string parameter_behind(ResNet& model, const TrainingStep& training) {
  std::vector<std::string> names;
  std::vector<bool> bad;
  for (const auto& item : model->named_parameters()) {
    names.push_back(item.key());
    bad.push_back(!finite(item.value().grad()));
  }
  bad = anywhere(training, bad);
  std::string found;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (bad[i]) found = names[i];
  return found;
}

std::string sentence(const Failure& failure) {
  std::string text = fmt::format("step {}: the {} is not finite", failure.step, failure.where);
  if (!failure.layer.empty()) text += ", beginning in " + failure.layer;
  if (!std::isnan(failure.smallest_gap))
    text += fmt::format(" (closest eigenvalues {:.3g} apart)", failure.smallest_gap);
  return text;
}

}  // namespace

Layers forward_by_layers(ResNet& model, const Tensor& images) {
  Layers layers;
  Tensor x = images;
  const auto add = [&](const std::string& name, const Tensor& output) {
    layers.emplace_back(name, output);
    x = output;
  };
  for (const auto& child : model->named_children()) {
    const std::string& name = child.key();
    if (auto* convolution = child.value()->as<torch::nn::Conv2d>()) {
      add(name, convolution->forward(x));
    } else if (child.value() == model->first_norm()) {
      add(name, apply_norm(*child.value(), x));
      x = torch::relu(x);
    } else if (auto* stage = child.value()->as<torch::nn::Sequential>()) {
      std::size_t number = 0;
      for (auto& block : *stage) add(fmt::format("{}.{}", name, number++), block.forward(x));
    } else if (auto* classifier = child.value()->as<torch::nn::Linear>()) {
      add(name, classifier->forward(x.mean({2, 3})));
    } else {
      throw Error("keel::lab::forward_by_layers: a layer '" + name + "' that it does not know");
    }
  }
  return layers;
}

Failure diagnose(TrainingStep& training, std::int64_t step) {
  const torch::AutoGradMode with_gradients(true);
  ResNet& model = training.model();
  const Batch batch = training.selected();
  Layers layers;
  {
    const Autocast autocast(training.device(), training.options().precision == "bfloat16");
    layers = forward_by_layers(model, batch.images);
  }
  Failure failure;
  failure.step = step;
  const Tensor loss = training.loss(layers.back().second, batch.labels);
  if (anywhere(training, {!finite(loss)})[0]) {
    failure.where = "loss";
    failure.layer = layer_of_output(layers, training);
  } else {
    for (auto& [name, output] : layers) output.retain_grad();
    training.parameters().clear_gradients();
    loss.backward();
    const std::string parameter = parameter_behind(model, training);
    failure.layer = layer_behind(layers, model, training);
    failure.where = parameter.empty() ? "gradient" : "gradient of " + parameter;
    training.parameters().clear_gradients();
  }
  failure.smallest_gap = layer_state(model).smallest_gap();
  failure.what = sentence(failure);
  return failure;
}

}  // namespace keel::lab
