#include "lab/train/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/json.h"
#include "lab/storage/own_files.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
/// Room for the names of ten thousands of classes. The values of any JSON of this size fit into 64 MB.
constexpr std::uintmax_t kLongestAbout = 1 << 20;

/// Intact, but for a later keel.
class OfLaterFormat : public Error {
 public:
  using Error::Error;
};
constexpr const char *kPrefix = "step-", *kAbout = ".json", *kTensors = ".safetensors";

/// Calls visit(name, field) for each number of a position.
template <typename Place, typename Visit>
void for_each_number(Place& p, Visit&& visit) {
  visit("step", p.step);
  visit("epoch", p.epoch);
  visit("batch", p.batch);
  visit("loss_sum", p.loss_sum);
  visit("error_sum", p.error_sum);
  visit("steps_summed", p.steps_summed);
  visit("interval_loss_sum", p.interval_loss_sum);
  visit("interval_error_sum", p.interval_error_sum);
  visit("interval_gradient_norm", p.interval_gradient_norm);
  visit("interval_steps", p.interval_steps);
  visit("best_test_error", p.best_test_error);
}

json written(const Position& position) {
  json result = json::object();
  // Doubles are written with enough digits to read back exactly, NaN as null.
  for_each_number(position, [&](const char* name, auto number) { result[name] = number; });
  result["last"] = to_json(position.last);
  return result;
}

/// Rejects impossible positions, which would make a run endless or end it too early.
void check(const Position& p) {
  require(p.epoch <= p.step && p.batch <= p.step && p.steps_summed <= p.batch &&
              p.interval_steps <= p.batch,
          "its position cannot be: step {}, batch {} of epoch {}, {} and {} steps summed", p.step,
          p.batch, p.epoch, p.steps_summed, p.interval_steps);
}

Position read_position(const json& given) {
  Position result;
  for_each_number(result, [&](const char* name, auto& number) {
    if constexpr (std::is_same_v<std::decay_t<decltype(number)>, double>) {
      const json& value = given.at(name);
      number = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    } else {
      number = whole_number(given, name);
    }
  });
  result.last = epoch_record(given.at("last"));
  check(result);
  return result;
}

std::string stem(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

/// The step in "step-00000042.json"; nothing for other names.
std::optional<std::int64_t> step_of(const fs::path& file, const char* extension) {
  const std::string name = file.filename().string(), prefix = kPrefix;
  if (file.extension() != extension || !name.starts_with(prefix)) return {};
  const auto step = number_in<std::int64_t>(file.stem().string().substr(prefix.size()));
  return step && *step >= 0 ? step : std::nullopt;
}

/// Newest first. None in a folder that is not there.
std::vector<std::int64_t> steps_in(const fs::path& folder, const char* extension) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (const auto step = step_of(entry->path(), extension)) steps.push_back(*step);
  if (error && error != std::errc::no_such_file_or_directory)
    throw Unreadable("cannot read the folder ", folder, error.value());
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

/// Keeps the checkpoint just written and the newest ones before it. Later ones are damaged, because the run fell back
/// from them. Counting them would push out good ones. Others' checkpoints count for nothing and stay.
void prune(const fs::path& folder, OwnFiles& own, std::int64_t keep, std::int64_t written) {
  std::set<std::int64_t> kept;
  std::vector<std::string> old;
  // The JSON first: a checkpoint with only one of its files must not look complete.
  for (const char* end : {kAbout, kTensors})
    for (const auto step : steps_in(folder, end)) {
      const std::string name = stem(step) + end;
      if (!own.has(name)) continue;
      if (end == kAbout && step <= written && std::int64_t(kept.size()) < keep) kept.insert(step);
      if (kept.count(step) == 0) old.push_back(name);
    }
  own.remove(old);  // what cannot be removed now is removed next time
  own.clean();
}

/// Compares the shapes in the file with those of the network that the options describe. Neither is in memory yet, and
/// either could be of any size.
void check_shapes(const fs::path& file, const ModelOptions& options) {
  constexpr std::int64_t kLongestState = 1 << 16;  // of a random generator
  const Shapes there = read_shapes(file);
  Shapes expected = state_shapes(options);
  for (const auto& [name, shape] : expected)
    require(there.count(name) > 0, "{} has no tensor '{}'", file.string(), name);
  for (const auto& [name, shape] : Shapes(expected)) {
    if (shape.size() != 4) continue;  // only convolutions have weights with four dimensions
    const std::int64_t inputs = shape[1] * shape[2] * shape[3];
    const std::string following = kFollowing + name.substr(0, name.rfind('.') + 1);
    expected[following + "input_mean"] = {1, inputs};
    expected[following + "input_covariance"] = {1, inputs, inputs};
    expected[following + "looks"] = {};
  }
  for (const auto& [name, shape] : there) {
    const bool momentum = name.starts_with(kMomentum);
    const auto found = expected.find(momentum ? name.substr(std::strlen(kMomentum)) : name);
    if (name.starts_with("random.") && shape.size() == 1 && shape[0] <= kLongestState) continue;
    require(found != expected.end(), "{} has a tensor '{}' that the network lacks", file.string(),
            name);
    require(shape == found->second, "expected '{}' of shape [{}] in {}, got [{}]", name,
            fmt::join(found->second, ", "), file.string(), fmt::join(shape, ", "));
  }
}

/// Mean and deviation of the three channels.
void read_normalisation(const json& data, Checkpoint& result) {
  const auto read = [&](const char* name, auto& numbers, auto holds) {
    const json& given = data.at(name);
    require(given.is_array() && given.size() == numbers.size() &&
                std::ranges::all_of(
                    given, [&](const json& x) { return x.is_number() && holds(x.get<double>()); }),
            "expected 3 numbers for the {} of the pixels, {}", name,
            name == std::string("mean") ? "from 0 to 1" : "above 0");
    given.get_to(numbers);
  };
  read("mean", result.mean, [](double x) { return x >= 0 && x <= 1; });
  read("deviation", result.deviation, [](double x) { return x > 0 && std::isfinite(x); });
}

Checkpoint load_from_json(const fs::path& file) {
  const json about = parse_json(read_file(file, kLongestAbout), file.string());
  require(about.is_object(), "{} is no JSON object", file.string());
  const json format = about.value("format", json());
  if (format.is_number_integer() && format > kFormat)
    throw OfLaterFormat(fmt::format("{} is of format {}, expected {}: a later keel wrote it",
                                    file.string(), format.dump(), kFormat));
  require(format == kFormat, "{} is of format {}, expected {}", file.string(), format.dump(),
          kFormat);
  Checkpoint result;
  std::uint64_t size = 0, sum = 0;
  try {
    result.position = read_position(about.at("position"));
    result.options = train_options(about.at("options"));
    validate(result.options);
    size = std::uint64_t(whole_number(about.at("tensors"), "bytes"));
    sum = std::uint64_t(whole_number(about.at("tensors"), "crc32"));
    result.recalibrated = whole_number(about, "recalibrated");
    result.data = about.at("data").at("name").get<std::string>();
    result.classes = about.at("data").at("classes").get<std::vector<std::string>>();
    if (about.at("data").contains("mean")) read_normalisation(about.at("data"), result);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", file.string(), error.what()));
  }
  fs::path tensors = file;
  tensors.replace_extension(kTensors);
  check_shapes(tensors, result.options.model);
  const std::string bytes = read_file(tensors);
  require(bytes.size() == size, "{} is {} bytes long, expected {}", tensors.string(), bytes.size(),
          size);
  require(crc32(bytes) == sum, "{} has checksum {:08x}, expected {:08x}", tensors.string(),
          crc32(bytes), sum);
  result.tensors = parse_safetensors(bytes, tensors.string());
  return result;
}

}  // namespace

fs::path save_checkpoint(const fs::path& folder, const Checkpoint& checkpoint,
                         const NamedTensors& tensors, std::int64_t keep, const WriteFile& write) {
  OwnFiles own(folder);
  own.begin();
  const std::string name = stem(checkpoint.position.step);
  const fs::path about_file = folder / (name + kAbout);
  std::map<std::string, std::string> metadata{{"format", "pt"}, {"producer", "keel"}};
  if (checkpoint.recalibrated > 0)
    metadata["recalibrated"] = fmt::format("{} batches", checkpoint.recalibrated);
  const std::string bytes = safetensors_bytes(tensors, metadata);
  json about = {{"format", kFormat},
                {"position", written(checkpoint.position)},
                {"options", to_json(checkpoint.options)},
                {"recalibrated", checkpoint.recalibrated},
                {"data", {{"name", checkpoint.data}, {"classes", checkpoint.classes}}},
                {"tensors", {{"bytes", bytes.size()}, {"crc32", crc32(bytes)}}}};
  if (checkpoint.deviation[0] > 0)
    about["data"].update({{"mean", checkpoint.mean}, {"deviation", checkpoint.deviation}});
  const std::string text = about.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  require(text.size() <= kLongestAbout, "{}: the names of {} classes take too much room",
          about_file.string(), checkpoint.classes.size());
  own.add(checkpoint_files(checkpoint.position.step));
  std::error_code ignored;
  // Marks an old checkpoint of this step incomplete while it is replaced.
  fs::remove(about_file, ignored);
  write(folder / (name + kTensors), bytes);
  write(about_file, text);
  prune(folder, own, keep, checkpoint.position.step);
  return about_file;
}

std::vector<std::string> checkpoint_files(std::int64_t step) {
  return {stem(step) + kAbout, stem(step) + kTensors};
}

Checkpoint load_checkpoint(const fs::path& file) {
  fs::path about = file;
  about.replace_extension(kAbout);
  try {
    return load_from_json(about);
  } catch (const Unreadable& error) {
    // Both files are there once a checkpoint is complete.
    if (error.code == ENOENT) throw Damaged(error.what());
    throw;
  } catch (const OfLaterFormat&) {
    throw;
  } catch (const Error& error) {
    throw Damaged(error.what());
  } catch (const json::exception& error) {  // its message names no file
    throw Damaged(fmt::format("{}: {}", about.string(), words_of(error)));
  } catch (const std::exception& error) {  // LibTorch's, about memory
    throw Unreadable(fmt::format("cannot read {}: {}", about.string(), error.what()), ENOMEM);
  }
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& where,
                                            const std::function<void(const std::string&)>& say) {
  if (fs::is_regular_file(where)) return load_checkpoint(where);
  const fs::path folder =
      fs::is_directory(where / run_files::kCheckpoints) ? where / run_files::kCheckpoints : where;
  const auto steps = steps_in(folder, kAbout);
  for (const auto step : steps) {
    try {
      return load_checkpoint(folder / (stem(step) + kAbout));
    } catch (const Damaged& error) {
      if (say)
        say(fmt::format("skipped the damaged checkpoint of step {} ({})", step, error.what()));
    }
  }
  // A process that was killed may have left the first half of its first checkpoint, not more.
  const auto halves = steps_in(folder, kTensors).size();
  if (steps.empty() && halves <= 1) return {};
  throw Damaged(fmt::format(
      "expected a checkpoint that can be used in {}, got {} damaged and {} without their .json",
      folder.string(), steps.size(), halves - std::min(halves, steps.size())));
}

NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors result;
  for (const auto& item : module.named_parameters()) result.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) result.emplace_back(item.key(), item.value());
  return result;
}

void load_network(torch::nn::Module& module, const SafeTensors& checkpoint) {
  const torch::NoGradGuard no_grad;
  for (auto [name, tensor] : state_of(module)) {
    const auto found = checkpoint.tensors.find(name);
    require(found != checkpoint.tensors.end() && found->second.sizes() == tensor.sizes(),
            "expected '{}' of shape {} in the checkpoint", name, c10::str(tensor.sizes()));
    tensor.copy_(found->second);
  }
}

ResNet load_model(const Checkpoint& checkpoint) {
  ResNet model(checkpoint.options.model);
  load_network(*model, checkpoint.tensors);
  model->eval();
  return model;
}

}  // namespace keel::lab
