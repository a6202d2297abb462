// The readers, and good files of each binary format. Good text files are in corpus/NAME. For any bytes, a reader must return a
// result or throw a keel::Error that names the file. Everything else is a finding: another exception, a crash, a hang, excessive
// memory, or a report of AddressSanitizer or UndefinedBehaviorSanitizer.

#include "lab/tests/fuzz/fuzz.h"

#include <torch/types.h>
#include <nlohmann/json.hpp>

#include <sstream>

#include "keel/error.h"
#include "keel/layer_matrix.h"
#include "lab/data/data_set.h"
#include "lab/report/groups.h"
#include "lab/report/npy.h"
#include "lab/report/page.h"
#include "lab/report/run_folder.h"
#include "lab/reproduce/recipe.h"
#include "lab/reproduce/results.h"
#include "lab/storage/safetensors.h"
#include "lab/storage/toml.h"
#include "lab/train/checkpoint.h"
#include "lab/train/options.h"
#include "support/files.h"

namespace keel::fuzz {
namespace {

// --- safetensors

void attack_safetensors(const std::string& bytes) {
  const auto rewritten = [](const lab::SafeTensors& read) {
    return lab::safetensors_bytes({read.tensors.begin(), read.tensors.end()}, read.metadata);
  };
  const lab::SafeTensors read = lab::parse_safetensors(bytes, kHostile);
  must("to write what was read", [&] {
    const std::string once = rewritten(read);
    const lab::SafeTensors again = lab::parse_safetensors(once, kHostile);
    expect(rewritten(again) == once, "the same file when written again");
    expect(again.tensors.size() == read.tensors.size(), "all tensors");
  });
}

std::vector<std::string> safetensors_seeds() {
  const auto numbers = torch::arange(6, torch::kFloat).reshape({2, 3});
  lab::NamedTensors every;
  for (const auto type :
       {torch::kBool, torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64,
        torch::kFloat16, torch::kBFloat16, torch::kFloat32, torch::kFloat64})
    every.emplace_back(c10::toString(type), numbers.to(type));
  return {lab::safetensors_bytes({}), lab::safetensors_bytes({{"x", numbers}}, {{"format", "pt"}}),
          lab::safetensors_bytes({{"empty", torch::empty({3, 0})}, {"scalar", torch::ones({})}}),
          lab::safetensors_bytes(every)};
}

// --- checkpoint: The JSON of a checkpoint; its tensors are good.

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

void attack_checkpoint(const std::string& bytes) {
  static const std::filesystem::path file = saved();
  testing::write_bytes(file, bytes);
  const lab::Checkpoint read = lab::load_checkpoint(file);
  must("to write the options that were read",
       [&] { return lab::train_options(lab::to_json(read.options)); });
}

std::vector<std::string> checkpoint_seeds() { return {testing::read_bytes(saved())}; }

// --- packed

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

void attack_packed(const std::string& bytes) {
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

std::vector<std::string> packed_seeds() {
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

// --- cifar: The first byte selects the set and the file that the other bytes replace. The other files are good.

constexpr std::size_t kPixels = 3072;

struct Set {
  const char* source;
  std::size_t labels;  ///< bytes in a record
  std::vector<const char*> files;
};

const Set kSets[] = {{"cifar10",
                      1,
                      {"data_batch_1.bin", "test_batch.bin", "batches.meta.txt", "data_batch_2.bin",
                       "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"}},
                     {"cifar100", 2, {"train.bin", "test.bin", "fine_label_names.txt"}}};
constexpr std::size_t kNames = 2;  // index in `files`

void attack_cifar(const std::string& bytes) {
  if (bytes.empty()) return;
  const auto choice = static_cast<unsigned char>(bytes[0]);
  const Set& set = kSets[choice % 2];
  const auto where = folder() / kHostile / set.source;
  for (std::size_t i = 0; i < set.files.size(); ++i)
    if (i != kNames)
      testing::write_bytes(where / set.files[i], std::string(set.labels + kPixels, '\1'));
  std::filesystem::remove(where / set.files[kNames]);
  testing::write_bytes(where / set.files[choice / 2 % 3], bytes.substr(1));

  const auto data = lab::load({.source = set.source, .path = where, .size = 4, .train_limit = 2});
  expect(data.train.labels.min().item<std::int64_t>() >= 0 &&
             data.train.labels.max().item<std::int64_t>() < std::int64_t(data.classes.size()),
         "labels of classes");
}

std::vector<std::string> cifar_seeds() {
  std::vector<std::string> all;
  for (char choice = 0; choice < 4; ++choice) {
    const std::size_t record = kSets[choice % 2].labels + kPixels;
    all.push_back(std::string(1, choice) + std::string(record, '\2') + std::string(record, '\3'));
  }
  for (const int set : {0, 1}) {
    std::string names(1, char(2 * kNames + set));
    for (int i = 0; i < (set == 0 ? 10 : 100); ++i) names += "n\r\n";
    all.push_back(names);
  }
  return all;
}

// --- npy

void attack_npy(const std::string& bytes) {
  const auto file = folder() / "hostile.npy";
  testing::write_bytes(file, bytes);
  const torch::Tensor read = lab::report::read_npy(file);
  expect(read.scalar_type() == torch::kDouble && read.is_contiguous(), "contiguous float64");
  expect(std::size_t(read.numel()) <= bytes.size(), "no more numbers than bytes");
}

std::string file_of(char version, const std::string& header, std::size_t data_bytes) {
  std::string bytes = std::string("\x93NUMPY") + version + '\0';
  bytes += char(header.size());
  bytes += version == 1 ? std::string(1, '\0') : std::string(3, '\0');
  return bytes + header + std::string(data_bytes, '\1');
}

std::vector<std::string> npy_seeds() {
  return {file_of(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }\n", 48),
          file_of(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 1), }\n", 24),
          file_of(2, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }\n", 24),
          file_of(3, "{'descr': '<f2', 'fortran_order': False, 'shape': (), }\n", 2),
          file_of(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (0, 7), }\n", 0)};
}

// --- config: The config.toml of a run, as `keel train --config` reads it.

/// The options without those of one call, which are not written.
nlohmann::json kept(const lab::TrainOptions& options) {
  nlohmann::json json = lab::to_json(options);
  json.erase("run");
  json.erase("resume");
  return json;
}

void attack_config(const std::string& bytes) {
  const nlohmann::json table = lab::parse_toml(bytes, kHostile);
  lab::TrainOptions options;
  try {
    options = lab::train_options(table);
  } catch (const Error&) {
    return;  // the message names the option; the command line adds the file
  }
  const auto again = must("to write what was read", [&] {
    return lab::train_options(lab::parse_toml(lab::to_toml(options), "written"));
  });
  expect(kept(again) == kept(options), "what was written to be what was read");
}

std::vector<std::string> config_seeds() { return {lab::to_toml({})}; }

// --- recipe

void attack_recipe(const std::string& bytes) {
  const auto file = folder() / kHostile / "recipe.toml";
  testing::write_bytes(file, bytes);
  namespace reproduce = lab::reproduce;
  const reproduce::Recipe recipe = reproduce::read_recipe(file);
  reproduce::cost(recipe, recipe.default_schedule);
  for (const reproduce::Cell& cell : recipe.cells)
    reproduce::cell_options(recipe, cell, recipe.default_schedule, reproduce::Json::object());
}

// --- results

void attack_results(const std::string& bytes) {
  namespace reproduce = lab::reproduce;
  const auto file = folder() / "hostile.json";
  testing::write_bytes(file, bytes);
  const reproduce::Results read = reproduce::read_results(file);
  // Writing rounds, so only the second write must change nothing.
  const auto rewritten = [&](const reproduce::Results& results) {
    reproduce::write_results(file, results);
    return testing::read_bytes(file);
  };
  must("to write what was read", [&] {
    const std::string once = rewritten(read);
    expect(rewritten(reproduce::read_results(file)) == once, "the same file when written again");
  });
}

// --- run_folder: metrics.jsonl, config.toml, result.json and spectrum.json of a run, separated by form feeds.

void attack_run_folder(const std::string& bytes) {
  namespace report = lab::report;
  const auto where = folder() / kHostile;
  std::istringstream all(bytes);
  for (const char* name : {"metrics.jsonl", "config.toml", "result.json", "spectrum.json"}) {
    std::string text;
    std::filesystem::remove(where / name);
    if (std::getline(all, text, '\f')) testing::write_bytes(where / name, text);
  }
  const report::Run run = report::read_run(where);
  must("to report what was read", [&] {
    const auto groups = report::grouped({run, run});
    return report::results_table(groups).aligned() + report::page(groups, {"title", "made by"});
  });
  // As a resumed run does.
  report::MetricsWriter(where / "metrics.jsonl", 2).write({{"kind", "step"}, {"step", 3}});
  must("to read what was written", [&] { return report::read_metrics(where / "metrics.jsonl"); });
}

// --- term: Rules, rank policies, maps and functions as text (keel/term.h). Every reader gets each text.

template <typename Value>
void attack_by(Value (*reader)(std::string_view, std::string_view), const std::string& bytes) {
  Value value;
  try {
    value = reader(bytes, kHostile);
  } catch (const Error& error) {
    expect(std::string(error.what()).rfind(kHostile, 0) == 0, "the operation's name in front");
    expect(std::string(error.what()).size() < 1000, "a short message");
    return;
  }
  const std::string text = must("to write what was read", [&] { return to_string(value); });
  const auto again = must("to read " + text, [&] { return to_string(reader(text, kHostile)); });
  expect(again == text, "what was written to be what was read: " + text);
}

void attack_term(const std::string& bytes) {
  attack_by(gradient_rule, bytes);
  attack_by(spectral_rule, bytes);
  attack_by(spectral_function, bytes);
  attack_by(rank_policy, bytes);
  attack_by(layer_map, bytes);
}

std::vector<std::string> term_seeds() {
  return {"lorentzian(width=1e-04)", "masked(tolerance=off)", "power(exponent=-0.5)",
          "leading_count(count=8)",
          "zca(eps=0.01, rank=algorithm1(energy=off, keep_reaching=false, literal=true))"};
}

}  // namespace

const std::vector<Reader>& readers() {
  static const std::vector<Reader> all{{"safetensors", attack_safetensors, safetensors_seeds},
                                       {"checkpoint", attack_checkpoint, checkpoint_seeds},
                                       {"packed", attack_packed, packed_seeds},
                                       {"cifar", attack_cifar, cifar_seeds},
                                       {"npy", attack_npy, npy_seeds},
                                       {"config", attack_config, config_seeds},
                                       {"recipe", attack_recipe, {}},
                                       {"results", attack_results, {}},
                                       {"run_folder", attack_run_folder, {}},
                                       {"term", attack_term, term_seeds}};
  return all;
}

}  // namespace keel::fuzz
