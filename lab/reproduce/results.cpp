#include "lab/reproduce/results.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <set>
#include <thread>

#include "keel/version.h"
#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/json.h"

namespace keel::lab::reproduce {
namespace {

namespace fs = std::filesystem;

Json list_of(const std::vector<double>& values, int digits) {
  Json list = Json::array();
  for (const double value : values) list.push_back(rounded(value, digits));
  return list;
}

std::vector<double> numbers_of(const Json& list) {
  std::vector<double> values;
  for (const Json& value : list) values.push_back(number_or_nan(value));
  return values;
}

constexpr std::pair<const char*, std::string Origin::*> kTexts[] = {
    {"date", &Origin::date},     {"command", &Origin::command},    {"tree", &Origin::tree},
    {"keel", &Origin::keel},     {"libtorch", &Origin::libtorch},  {"cuda", &Origin::cuda},
    {"device", &Origin::device}, {"processor", &Origin::processor}};

Json to_json(const Origin& origin) {
  Json json = Json::object();
  for (const auto& [name, text] : kTexts) json[name] = origin.*text;
  json["cores"] = origin.cores;
  return json;
}

Origin origin_of(const Json& json) {
  Origin origin;
  origin.cores = json.at("cores").get<std::int64_t>();
  for (const auto& [name, text] : kTexts) origin.*text = json.at(name).get<std::string>();
  return origin;
}

/// Writes lists one item per line, so that diffs are readable.
std::string one_item_a_line(const Json& object) {
  std::string out = "{";
  for (const auto& [name, value] : object.items()) {
    out += fmt::format("{}\n{}: ", out.size() > 1 ? "," : "", Json(name).dump());
    if (!value.is_array() || value.empty() || !value.front().is_structured()) {
      out += value.dump();
      continue;
    }
    out += "[";
    for (std::size_t i = 0; i < value.size(); ++i) out += (i ? ",\n " : "\n ") + value[i].dump();
    out += "\n]";
  }
  return out + "\n}\n";
}

std::string text_of(const Json& value) { return value.is_null() ? "nothing" : value.dump(); }

void require_equal(const Results& results, const std::string& where, const Json& recorded,
                   const Json& wanted) {
  std::set<std::string> names;
  for (const auto& [name, value] : recorded.items()) names.insert(name);
  for (const auto& [name, value] : wanted.items()) names.insert(name);
  for (const auto& name : names) {
    const Json before = recorded.value(name, Json()), now = wanted.value(name, Json());
    if (before == now) continue;
    throw Error(fmt::format(
        "{}: the existing results were made with {} = {}{}, but this call asks for {}: give the "
        "same options to add to them, --fresh to start again, or another --out",
        results.experiment, name, text_of(before), where, text_of(now)));
  }
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

/// What the environment's KEEL_TREE says, or git.
std::string source_tree() {
  if (const char* told = std::getenv("KEEL_TREE")) return told;
  char line[256] = "";
  if (FILE* git = ::popen("git describe --always --dirty 2>/dev/null", "r")) {
    if (std::fgets(line, sizeof line, git) == nullptr) line[0] = 0;
    ::pclose(git);
  }
  const std::string tree = line;
  return tree.empty() ? "unknown" : tree.substr(0, tree.find('\n'));
}

std::string today() {
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

}  // namespace

std::string cuda_version() {
  // Every LibTorch with CUDA reports it in its configuration, whatever devices this machine has.
  const std::string config = at::show_config(), mark = "CUDA Runtime ";
  const auto found = config.find(mark);
  if (found == std::string::npos) return {};
  const auto begin = found + mark.size();
  return config.substr(begin, config.find_first_not_of("0123456789.", begin) - begin);
}

Origin this_origin(const std::string& command, const std::string& device) {
  const std::string cuda = cuda_version();
  return {.date = today(),
          .command = command,
          .tree = source_tree(),
          .keel = KEEL_VERSION,
          .libtorch = TORCH_VERSION,
          .cuda = cuda.empty() ? "none" : cuda,
          .device = device,
          .processor = processor(),
          .cores = std::int64_t(std::thread::hardware_concurrency())};
}

Data description_of(const DataSet& data) {
  return {data.name, std::int64_t(data.classes.size()), data.train.count(), data.test.count()};
}

std::string Data::text() const {
  return fmt::format("{} ({} classes, {} training and {} test images)", name, classes, train, test);
}

const Trial* Results::find(const std::string& cell, std::uint64_t seed) const {
  for (const Trial& trial : trials)
    if (trial.cell == cell && trial.seed == seed) return &trial;
  return nullptr;
}

std::vector<const Trial*> Results::of(const Cell& cell) const {
  const std::string& name = cell.same_as.empty() ? cell.name : cell.same_as;
  std::vector<const Trial*> found;
  for (const Trial& trial : trials)
    if (trial.cell == name) found.push_back(&trial);
  std::ranges::sort(found, {}, &Trial::seed);
  return found;
}

std::int64_t Results::place(const Origin& origin) {
  const auto found =
      std::ranges::find_if(origins, [&](const Origin& s) { return s.same_as(origin); });
  if (found != origins.end()) return found - origins.begin();
  origins.push_back(origin);
  return std::int64_t(origins.size()) - 1;
}

Json rounded(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  const double kept = std::stod(fmt::format("{:.{}g}", value, digits));
  // Integers need no decimal point.
  if (std::abs(kept) < 1e9 && kept == std::floor(kept)) return std::int64_t(kept);
  return kept;
}

Json to_json(const Trial& t) {
  const Result& r = t.result;
  Json json = {{"cell", t.cell},
               {"seed", t.seed},
               {"status", r.status},
               {"error", rounded(r.test_error)},
               {"best_error", rounded(r.best_test_error)},
               {"train_loss", rounded(r.train_loss)},
               {"steps", r.steps},
               {"epochs", r.epochs},
               {"seconds", rounded(r.seconds, 4)},
               {"images_per_second", rounded(r.images_per_second)},
               {"origin", t.origin},
               {"at", list_of(t.at, 9)},
               {"loss", list_of(t.loss, 4)},
               {"gradient", list_of(t.gradient, 3)},
               {"test_errors", list_of(t.test_errors, 4)}};
  if (r.peak_mib > 0) json["peak_mib"] = rounded(r.peak_mib);
  if (!t.recalibrated_errors.empty()) {
    json["recalibrated_error"] = rounded(r.recalibrated_test_error);
    json["recalibrated_errors"] = list_of(t.recalibrated_errors, 4);
    if (r.recalibration_seconds > 0)
      json["recalibration_seconds"] = rounded(r.recalibration_seconds, 3);
  }
  if (!t.followed_errors.empty()) {
    json["followed_error"] = rounded(r.followed_test_error);
    json["followed_errors"] = list_of(t.followed_errors, 4);
  }
  if (r.failure) {
    json["failure"] = lab::to_json(*r.failure);
    json["failure"]["smallest_gap"] = rounded(r.failure->smallest_gap, 4);
    json["failure"]["gradients"] = list_of(r.failure->gradients, 3);
    if (r.failure->gradients.empty()) json["failure"].erase("gradients");
  }
  return json;
}

Trial trial_of(const Json& json) {
  const auto numbers = [&](const char* name) {
    return json.contains(name) ? numbers_of(json.at(name)) : std::vector<double>();
  };
  Trial t{.cell = json.at("cell").get<std::string>(),
          .seed = json.at("seed").get<std::uint64_t>(),
          .result = result_record(json),
          .origin = json.at("origin").get<std::int64_t>(),
          .at = numbers("at"),
          .loss = numbers("loss"),
          .gradient = numbers("gradient"),
          .test_errors = numbers("test_errors"),
          .recalibrated_errors = numbers("recalibrated_errors"),
          .followed_errors = numbers("followed_errors")};
  // Shorter names than in result.json.
  t.result.test_error = number_or_nan(json.at("error"));
  t.result.best_test_error = number_or_nan(json.at("best_error"));
  t.result.recalibrated_test_error = number_or_nan(json.value("recalibrated_error", Json()));
  t.result.followed_test_error = number_or_nan(json.value("followed_error", Json()));
  require(t.result.status == "finished" || t.result.status == "failed", "no status '{}'",
          t.result.status);
  return t;
}

Json to_json(const Data& data) {
  return {
      {"name", data.name}, {"classes", data.classes}, {"train", data.train}, {"test", data.test}};
}

Data data_of(const Json& json) {
  return {json.at("name").get<std::string>(), json.at("classes").get<std::int64_t>(),
          json.at("train").get<std::int64_t>(), json.at("test").get<std::int64_t>()};
}

Results read_results(const fs::path& file) {
  Results results;
  if (!fs::exists(file)) return results;
  try {
    const Json json = parse_ordered_json(read_file(file), "it");
    require(json.is_object(), "it is no JSON object");
    results.experiment = json.at("experiment").get<std::string>();
    results.schedule = json.at("schedule").get<std::string>();
    results.options = json.at("options");
    results.cells = json.value("cells", Json::object());
    if (json.contains("data")) results.data = data_of(json.at("data"));
    for (const Json& one : json.at("origins")) results.origins.push_back(origin_of(one));
    if (json.contains("trials"))
      for (const Json& one : json.at("trials")) results.trials.push_back(trial_of(one));
    results.measured = json.value("measured", Json());
    for (const Trial& trial : results.trials)
      require(trial.origin >= 0 && trial.origin < std::int64_t(results.origins.size()),
              "no origin {}", trial.origin);
  } catch (const Json::exception& error) {
    throw Error(fmt::format("{}: {}", file.string(), words_of(error)));
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: {}", file.string(), error.what()));
  }
  return results;
}

void write_results(const fs::path& file, const Results& results) {
  Json json = {{"experiment", results.experiment},
               {"schedule", results.schedule},
               {"options", results.options}};
  if (results.data) json["data"] = to_json(*results.data);
  json["origins"] = Json::array();
  for (const Origin& origin : results.origins) json["origins"].push_back(to_json(origin));
  if (!results.cells.empty()) json["cells"] = results.cells;
  if (!results.trials.empty()) json["trials"] = Json::array();
  for (const Trial& trial : results.trials) json["trials"].push_back(to_json(trial));
  std::string text = one_item_a_line(json);
  if (!results.measured.is_null()) {  // the measurement's own lists too
    text.resize(text.size() - 3);
    text += ",\n\"measured\": " + one_item_a_line(results.measured);
    text += "}\n";
  }
  fs::create_directories(fs::absolute(file).parent_path());
  write_file_atomically(file, text);
}

Json identity(const Json& options) {
  using enum About;
  static const auto of_a_call = options_about({place, machine, seed, records, call});
  Json kept = Json::object();
  for (const auto& [name, value] : options.items())
    if (!of_a_call.count(name) && name != "source") kept[name] = value;  // Data tells the source
  return kept;
}

void require_same(const Results& results, const Recipe& recipe, const std::string& schedule,
                  const Json& given) {
  if (results.empty()) return;
  if (results.schedule != schedule)
    require_equal(results, "", {{"schedule", results.schedule}}, {{"schedule", schedule}});
  require_equal(results, "", results.options, identity(common_options(recipe, schedule, given)));
  for (const auto& [name, train] : results.cells.items()) {
    const Cell* cell = recipe.find(name);
    require(cell != nullptr,
            "{}: the existing results have a cell '{}' that the recipe does not have; --fresh "
            "discards them",
            results.experiment, name);
    require_equal(results, " in cell " + name, train, cell->train);
  }
}

}  // namespace keel::lab::reproduce
