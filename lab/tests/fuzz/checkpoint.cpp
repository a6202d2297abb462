// The JSON of a checkpoint; its tensors are good.

#include "lab/train/checkpoint.h"

#include <nlohmann/json.hpp>

#include "lab/tests/fuzz/fuzz.h"
#include "support/files.h"

namespace keel::fuzz::checkpoint {

lab::Checkpoint example() {
  lab::Checkpoint checkpoint;
  checkpoint.position.step = 42;
  checkpoint.data = "data";
  checkpoint.options.model = {.name = "resnet_small", .classes = 2, .width = 1};
  checkpoint.classes = {"a", "b"};
  checkpoint.mean = checkpoint.deviation = {0.5, 0.5, 0.5};
  return checkpoint;
}

std::filesystem::path saved() {
  lab::NamedTensors tensors;
  for (const auto& [name, shape] : lab::state_shapes(example().options.model))
    tensors.emplace_back(name, torch::ones(shape));
  return lab::save_checkpoint(folder() / kHostile, example(), tensors, 1);
}

void attack(const std::string& bytes) {
  static const std::filesystem::path file = saved();
  testing::write_bytes(file, bytes);
  const lab::Checkpoint read = lab::load_checkpoint(file);
  must("to write the options that were read",
       [&] { return lab::train_options(lab::to_json(read.options)); });
}

std::vector<std::string> seeds() { return {testing::read_bytes(saved())}; }

const Registration registration({"checkpoint", attack, seeds});

}  // namespace keel::fuzz::checkpoint
