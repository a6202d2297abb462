#include "lab/report/recorder.h"
#include "lab/storage/own_files.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "keel/version.h"
#include "lab/train/checkpoint.h"

namespace keel::lab::report {
namespace {

/// Whether the run was resumed after its last step: nothing is left to do, and its result exists.
bool is_over(const RunInfo& info) { return info.first_step > 0 && info.first_step == info.steps; }

/// Seconds since 1970.
double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Recorder::Recorder(std::filesystem::path folder, Say say, bool replace)
    : folder_(std::move(folder)), say_(std::move(say)), replaces_(replace) {}

void Recorder::on_start(const RunInfo& info) {
  info_ = info;
  step_ = info.first_step;
  OwnFiles own(folder_);
  // The config first, so that a half-deleted run cannot be resumed.
  if (replaces_) own.remove_all(run_files::kConfig);
  own.begin();
  if (!is_over(info)) own.remove({run_files::kResult});  // it does not describe the resumed run
  write_file(run_files::kConfig, to_toml(info.options));
  try {
    OwnFiles(folder_).add({run_files::kMetrics});
    metrics_.emplace(folder_ / run_files::kMetrics, info.first_step > 0 ? info.first_step : -1,
                     say_);
  } catch (const std::system_error& error) {
    report(error.what());
  }
  write("start", {{"step", info.first_step},
                  {"time", unix_time()},
                  {"device", info.device},
                  {"parameters", info.parameters},
                  {"train_images", info.train_images},
                  {"test_images", info.test_images},
                  {"steps_per_epoch", info.steps_per_epoch},
                  {"steps", info.steps},
                  {"keel", KEEL_VERSION},
                  {"libtorch", TORCH_VERSION}});
}

void Recorder::on_step(const StepRecord& r) {
  step_ = r.step;
  write("step", to_json(r));
}

void Recorder::on_epoch(const EpochRecord& r) {
  step_ = r.step;
  write("epoch", to_json(r));
}

void Recorder::on_failure(const Failure& f) { write("failure", to_json(f)); }

void Recorder::on_message(const std::string& message) {
  write("message", {{"step", step_}, {"text", message}});
}

void Recorder::on_finish(const Result& result) {
  has_result_ = is_over(info_) && std::filesystem::exists(folder_ / run_files::kResult);
  if (has_result_) return;
  Json json = to_json(result);
  json["device"] = info_.device;
  json["parameters"] = info_.parameters;
  json["keel"] = KEEL_VERSION;
  json["libtorch"] = TORCH_VERSION;
  has_result_ = write_file(run_files::kResult, json.dump(2) + "\n");
}

void Recorder::write(const char* kind, const Json& fields) {
  if (!metrics_) return;
  Json record = {{"kind", kind}};
  record.update(fields);
  metrics_->write(record);
  if (const int error = metrics_->error())
    report(fmt::format("cannot write {}: {}", (folder_ / run_files::kMetrics).string(),
                       std::strerror(error)));
}

bool Recorder::write_file(const char* name, const std::string& text) {
  try {
    OwnFiles(folder_).add({name});
    replace_file(folder_ / name, text);
    return true;
  } catch (const std::exception& error) {
    report(error.what());
    return false;
  }
}

void Recorder::report(const std::string& what) {
  if (reported_) return;
  reported_ = true;
  say_(what + "; the run goes on without");
}

}  // namespace keel::lab::report
