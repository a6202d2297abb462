#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/report/run_folder.h"
#include "lab/train/trainer.h"

namespace keel::lab::report {

/// Writes a run's files other than checkpoints: config.toml, metrics.jsonl and result.json.
/// Reports a full or lost disk once through `say`, and unreadable lines of an earlier metrics.jsonl too. The run
/// continues.
class Recorder : public Observer {
 public:
  /// With `replace`, the previous run in the folder goes when this one is about to take its first step, after data,
  /// options and network are known to be good.
  Recorder(std::filesystem::path folder, Say say, bool replace = false);

  void on_start(const RunInfo& info) override;
  void on_step(const StepRecord& record) override;
  void on_epoch(const EpochRecord& record) override;
  void on_failure(const Failure& failure) override;
  void on_message(const std::string& message) override;
  void on_finish(const Result& result) override;

  /// Whether the run has ended and result.json is written.
  bool has_result() const { return has_result_; }

 private:
  void write(const char* kind, const Json& fields);
  /// Returns false if the file could not be written.
  bool write_file(const char* name, const std::string& text);
  void report(const std::string& what);

  std::filesystem::path folder_;
  Say say_;
  bool replaces_, reported_ = false, has_result_ = false;
  std::int64_t step_ = 0;
  RunInfo info_;
  std::optional<MetricsWriter> metrics_;
};

/// Forwards all events to several observers, in order.
class Observers : public Observer {
 public:
  explicit Observers(std::vector<Observer*> all) : all_(std::move(all)) {}

  void on_start(const RunInfo& info) override { tell(&Observer::on_start, info); }
  void on_step(const StepRecord& record) override { tell(&Observer::on_step, record); }
  void on_epoch(const EpochRecord& record) override { tell(&Observer::on_epoch, record); }
  void on_layer(const LayerState& state, std::int64_t step) override {
    tell(&Observer::on_layer, state, step);
  }
  void on_failure(const Failure& failure) override { tell(&Observer::on_failure, failure); }
  void on_message(const std::string& message) override { tell(&Observer::on_message, message); }
  void on_finish(const Result& result) override { tell(&Observer::on_finish, result); }

 private:
  template <typename Method, typename... Event>
  void tell(Method on_event, const Event&... event) {
    for (Observer* one : all_) (one->*on_event)(event...);
  }

  std::vector<Observer*> all_;
};

}  // namespace keel::lab::report
