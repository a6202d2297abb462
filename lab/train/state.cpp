// Copies between a network and named tensors.

#include <set>

#include "lab/require.h"
#include "lab/train/checkpoint.h"

namespace keel::lab {

NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors result;
  for (const auto& item : module.named_parameters()) result.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) result.emplace_back(item.key(), item.value());
  return result;
}

void load_state(torch::nn::Module& module, const std::map<std::string, torch::Tensor>& state,
                const std::string& file) {
  const NamedTensors mine = state_of(module);
  // Check everything first, so that a network is loaded completely or not at all.
  for (const auto& [name, tensor] : mine) {
    const auto found = state.find(name);
    require(found != state.end(), "{} has no tensor '{}'", file, name);
    require(found->second.sizes() == tensor.sizes(), "expected '{}' of shape {} in {}, got {}",
            name, c10::str(tensor.sizes()), file, c10::str(found->second.sizes()));
  }
  std::set<std::string> known;
  for (const auto& [name, tensor] : mine) known.insert(name);
  for (const auto& [name, tensor] : state)
    require(known.count(name) > 0, "{} has a tensor '{}' that the network lacks", file, name);
  const torch::NoGradGuard no_grad;
  for (auto [name, tensor] : mine) tensor.copy_(state.at(name));
}

void load_network(torch::nn::Module& module, const SafeTensors& checkpoint) {
  auto state = checkpoint.tensors;
  std::erase_if(state, [](const auto& item) { return is_of_the_run(item.first); });
  load_state(module, state, "the checkpoint");
}

ResNet load_model(const Checkpoint& checkpoint) {
  ResNet model(checkpoint.options.model);
  load_network(*model, checkpoint.tensors);
  model->eval();
  return model;
}

}  // namespace keel::lab
