#include "lab/train/resume.h"

#include <ATen/CPUGeneratorImpl.h>

#include <nlohmann/json.hpp>

#include "lab/require.h"

namespace keel::lab {
namespace {

torch::Tensor random_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

/// What followed norms know of their convolutions' inputs.
NamedTensors followed_inputs(ResNet& model) {
  NamedTensors result;
  for (const Normed* part : model->normed()) {
    const auto& following = part->following();
    if (!following) continue;
    const std::string name = kFollowing + part->convolution_name() + ".";
    result.emplace_back(name + "input_mean", following->input_mean);
    result.emplace_back(name + "input_covariance", following->input_covariance);
    result.emplace_back(name + "looks", following->looks);
  }
  return result;
}

}  // namespace

void set_random_state(const torch::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

void require_same_run(const Checkpoint& checkpoint, const TrainOptions& options,
                      const DataSet& data) {
  const auto then = to_json(checkpoint.options), now = to_json(options);
  for (const auto& [name, value] : now.items())
    if ((name == "seed" || !options_beside_the_experiment().count(name)) && value != then.at(name))
      throw OtherOptions(fmt::format("cannot resume: the checkpoint was made with {} {}, got {}",
                                     name, then.at(name).dump(), value.dump()));
  require(
      checkpoint.data == data.name && checkpoint.classes == data.classes,
      "cannot resume: the checkpoint was made with other data ({}, {} classes), got {}, {} classes",
      checkpoint.data, checkpoint.classes.size(), data.name, data.classes.size());
}

NamedTensors tensors_of(TrainingStep& training) {
  NamedTensors result = state_of(*training.model());
  for (const auto& [name, momentum] : training.parameters().named_momenta())
    result.emplace_back(kMomentum + name, momentum);
  for (const auto& one : followed_inputs(training.model())) result.push_back(one);
  result.emplace_back(kRandomState, random_state());
  return result;
}

void restore_tensors(const SafeTensors& tensors, TrainingStep& training) {
  load_network(*training.model(), tensors);
  const torch::NoGradGuard no_grad;
  for (auto [name, momentum] : training.parameters().named_momenta()) {
    const auto found = tensors.tensors.find(kMomentum + name);
    require(found != tensors.tensors.end() && found->second.sizes() == momentum.sizes(),
            "cannot resume: expected {}{} of shape {} in the checkpoint", kMomentum, name,
            c10::str(momentum.sizes()));
    momentum.copy_(found->second);
  }
  // A run may be continued with other norms that follow. Those start again.
  for (auto [name, tensor] : followed_inputs(training.model()))
    if (const auto found = tensors.tensors.find(name); found != tensors.tensors.end())
      tensor.copy_(found->second);
  const auto random = tensors.tensors.find(kRandomState);
  if (random != tensors.tensors.end()) set_random_state(random->second);
}

}  // namespace keel::lab
