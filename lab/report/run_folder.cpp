#include "lab/report/run_folder.h"
#include "lab/storage/own_files.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/json.h"
#include "lab/storage/toml.h"

namespace keel::lab::report {
namespace {

namespace fs = std::filesystem;

std::int64_t step_of(const Json& record) {
  const auto found = record.find("step");
  return found != record.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::string text_of(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found != record.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Json read_json(const fs::path& path) {
  const Json json = parse_ordered_json(read_file(path), path.string());
  require(json.is_object(), "{} is no JSON object", path.string());
  return json;
}

/// Each option's value as text. Empty if the file does not exist.
std::vector<std::pair<std::string, std::string>> read_settings(const fs::path& path) {
  std::vector<std::pair<std::string, std::string>> settings;
  if (!fs::exists(path)) return settings;
  const Json table = parse_toml(read_file(path), path.string());
  for (const auto& [name, value] : table.items())
    settings.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  return settings;
}

std::vector<double> row_of(const Json& array) {
  std::vector<double> row;
  for (const Json& entry : array) row.push_back(number_or_nan(entry));
  return row;
}

/// {"values": one list per group, "covariance": one matrix per group}.
std::vector<GroupSpectrum> groups_of(const Json& json, const fs::path& path) {
  const Json values = json.value("values", Json()), matrices = json.value("covariance", Json());
  std::vector<GroupSpectrum> groups;
  if (!values.is_array()) return groups;  // a layer without a spectrum
  for (std::size_t g = 0; g < values.size(); ++g) {
    GroupSpectrum group{row_of(values[g]), {}};
    if (matrices.is_array() && g < matrices.size())
      for (const Json& row : matrices[g]) group.covariance.push_back(row_of(row));
    for (const auto& row : group.covariance) {
      require(row.size() == group.covariance.size(),
              "{}: expected square covariances, got a row of {} among {} rows", path.string(),
              row.size(), group.covariance.size());
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

/// {"layers": such objects, each with its name}.
std::vector<LayerSpectrum> read_spectra(const fs::path& path) {
  const Json json = read_json(path), layers = json.value("layers", Json());
  std::vector<LayerSpectrum> spectra;
  if (!layers.is_array()) return spectra;
  for (const Json& one : layers) {
    require(one.is_object(), "{}: expected an object for each layer", path.string());
    LayerSpectrum layer{text_of(one, "name"), groups_of(one, path)};
    if (!layer.groups.empty()) spectra.push_back(std::move(layer));
  }
  return spectra;
}

/// Rewrites the file without unreadable lines and those of later steps.
void keep_until(const fs::path& path, std::int64_t last_step, const Say& say) {
  std::string kept;
  if (last_step >= 0 && fs::exists(path))
    for (const Json& record : read_metrics(path, say))
      if (step_of(record) <= last_step) kept += record.dump() + '\n';
  replace_file(path, kept);
}

}  // namespace

std::vector<Json> read_metrics(const std::filesystem::path& path, const Say& say) {
  const std::string text = read_file(path);
  std::vector<Json> records;
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    const bool whole = end != std::string::npos;  // if not, the writer was killed here
    const std::string line = text.substr(begin, whole ? end - begin : end);
    begin = whole ? end + 1 : text.size();
    if (line.empty()) continue;
    try {
      Json record = parse_ordered_json(line, fmt::format("{}, line {}", path.string(), number));
      require(record.is_object(), "{}, line {} is no JSON object", path.string(), number);
      records.push_back(std::move(record));
    } catch (const Error& error) {
      if (whole && say) say(fmt::format("{}; it is left out", error.what()));
    }
  }
  return records;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::int64_t last_step,
                             const Say& say)
    : file_((keep_until(path, last_step, say), path)) {}

void MetricsWriter::write(const Json& record) {
  file_.write(record.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
}

std::string Run::setting(const std::string& name) const {
  for (const auto& [key, value] : settings)
    if (key == name) return value;
  return {};
}

Run read_run(const fs::path& folder) {
  const auto metrics = folder / run_files::kMetrics;
  require(fs::exists(metrics), "expected a run folder with metrics.jsonl, got {}", folder.string());
  Run run;
  run.folder = folder;
  run.settings = read_settings(folder / run_files::kConfig);
  Result& result = run.result;
  result.status = "unfinished";
  const auto note = [&](const std::string& text) { run.notes.push_back(text); };
  for (const Json& record : read_metrics(metrics, note)) {
    const auto kind = text_of(record, "kind");
    if (kind == "step") run.steps.push_back(step_record(record));
    if (kind == "epoch") run.epochs.push_back(epoch_record(record));
    if (kind == "failure") result.failure = failure_record(record);
  }
  run.seconds = 0;
  for (const EpochRecord& epoch : run.epochs) {
    run.seconds += epoch.seconds;
    if (std::isnan(epoch.test_error)) continue;
    result.test_error = epoch.test_error;
    result.recalibrated_test_error = epoch.recalibrated_test_error;
    result.followed_test_error = epoch.followed_test_error;
  }
  if (result.failure) result.status = "failed";
  if (!run.steps.empty()) result.images_per_second = run.steps.back().images_per_second;
  if (fs::exists(folder / run_files::kResult)) {
    const Json json = read_json(folder / run_files::kResult);
    const auto failure = result.failure;
    result = result_record(json);
    if (!result.failure) result.failure = failure;
    run.device = text_of(json, "device");
  }
  if (fs::exists(folder / run_files::kSpectrum))
    run.spectra = read_spectra(folder / run_files::kSpectrum);
  return run;
}

}  // namespace keel::lab::report
