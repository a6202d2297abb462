#include <torch/types.h>

#include "keel/error.h"
#include "lab/data/data_set.h"
#include "lab/tests/fuzz/fuzz.h"
#include "support/files.h"

namespace keel::fuzz::packed {

lab::DataSet load(const std::filesystem::path& file) {
  return lab::load({.source = "packed", .path = file, .size = 0});
}

/// `bytes` with the checksum that their error message expects. A mutation never gets it right.
std::string mended(std::string bytes, const std::string& refusal) {
  const std::string first = "expected checksum ", second = ", got ";
  const auto begin = refusal.find(first);
  if (begin == std::string::npos) return {};
  const auto middle = refusal.rfind(second);
  const std::string stated = refusal.substr(begin + first.size(), middle - begin - first.size());
  const auto place = bytes.find("\"" + stated + "\"");
  if (stated.size() != 8 || place == std::string::npos) return {};
  return bytes.replace(place + 1, 8, refusal, middle + second.size(), 8);
}

void attack(const std::string& bytes) {
  const auto file = folder() / "hostile.pack";
  testing::write_bytes(file, bytes);
  lab::DataSet data;
  try {
    data = load(file);
  } catch (const Error& error) {
    const std::string better = mended(bytes, error.what());
    if (better.empty()) throw;
    testing::write_bytes(file, better);
    data = load(file);
  }
  const auto again = must("to pack what was read", [&] {
    lab::pack(data, file);
    return load(file);
  });
  expect(again.classes == data.classes && again.mean == data.mean &&
             again.train.pixels.equal(data.train.pixels) &&
             again.test.labels.equal(data.test.labels),
         "what was packed to be what was read");
  lab::load({.source = "packed", .path = file, .size = 5, .train_limit = 2, .seed = 1});
}

std::vector<std::string> seeds() {
  const auto images = [](std::int64_t count) {
    return lab::Images{torch::arange(count * 12, torch::kUInt8).reshape({count, 3, 2, 2}),
                       torch::arange(count, torch::kLong).remainder(2)};
  };
  const auto file = folder() / "seed.pack";
  lab::pack({.name = "n",
             .classes = {"a", "b"},
             .train = images(3),
             .test = images(1),
             .mean = {0.5, 0.5, 0.5},
             .deviation = {0.25, 0.25, 0.25}},
            file);
  return {testing::read_bytes(file)};
}

const Registration registration({"packed", attack, seeds});

}  // namespace keel::fuzz::packed
