#include "lab/reproduce/trial.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "lab/report/put.h"
#include "lab/report/recorder.h"
#include "lab/report/run_folder.h"
#include "lab/storage/folder_claim.h"

namespace keel::lab::reproduce {
namespace {

constexpr std::int64_t kPoints = 60;       // per recorded curve, at most
constexpr std::int64_t kCheckpoints = 20;  // per run

class Curves : public Observer {
 public:
  void on_start(const RunInfo& info) override { device = info.device; }
  void on_step(const StepRecord& record) override {
    at.push_back(double(record.step));
    loss.push_back(record.loss);
    gradient.push_back(record.gradient_norm_layer);
  }
  void on_epoch(const EpochRecord& record) override {
    evaluated(record.test_error, record.recalibrated_test_error);
  }

  void evaluated(double test_error, double recalibrated) {
    if (!std::isnan(test_error)) test_errors.push_back(test_error);
    if (!std::isnan(recalibrated)) recalibrated_errors.push_back(recalibrated);
  }

  std::string device;
  std::vector<double> at, loss, gradient, test_errors, recalibrated_errors;
};

std::int64_t steps_of(const TrainOptions& options, const DataSet& data) {
  const std::int64_t steps = options.epochs * (data.train.count() / options.batch);
  return options.max_steps > 0 ? std::min(options.max_steps, steps) : steps;
}

/// Every k-th value counted from the last, at most kPoints of them.
std::vector<double> thinned(const std::vector<double>& values) {
  const std::size_t step = (values.size() + kPoints - 1) / kPoints;
  if (step <= 1) return values;
  std::vector<double> kept;
  for (std::size_t i = values.size(); i > 0; i = i > step ? i - step : 0)
    kept.push_back(values[i - 1]);
  std::ranges::reverse(kept);
  return kept;
}

/// Replaces the curves by the folder's. For a resumed run, only the folder has the beginning.
void take_all(Curves& curves, const report::Run& run) {
  for (auto* curve : {&curves.at, &curves.loss, &curves.gradient, &curves.test_errors,
                      &curves.recalibrated_errors})
    curve->clear();
  for (const auto& step : run.steps) {
    curves.at.push_back(double(step.step));
    curves.loss.push_back(step.loss);
    curves.gradient.push_back(step.gradient_norm_layer);
  }
  for (const auto& epoch : run.epochs)
    curves.evaluated(epoch.test_error, epoch.recalibrated_test_error);
}

}  // namespace

Data description_of(const DataSet& data) {
  return {data.name, std::int64_t(data.classes.size()), data.train.count(), data.test.count()};
}

std::string in_use(const std::filesystem::path& run) {
  return "" + run.string() + " is in use: another process trains there now";
}

TrialOutcome run_trial(const std::string& cell, TrainOptions options,
                       const std::optional<Data>& expected) {
  std::optional<FolderClaim> alone;
  if (!options.run.empty()) alone.emplace(options.run, in_use(options.run));
  const DataSet data = load(options.data);
  if (expected && !(*expected == description_of(data)))
    return {.trial = {.cell = cell, .seed = options.seed, .result = {.status = "other data"}},
            .data = description_of(data),
            .device = ""};
  const std::int64_t steps = steps_of(options, data);
  options.log_every = std::max<std::int64_t>(1, (steps + kPoints - 1) / kPoints);
  options.evaluate_every = (options.epochs + kPoints - 1) / kPoints;
  Curves curves;
  std::vector<Observer*> all{&curves};
  std::unique_ptr<report::Recorder> recorder;
  if (!options.run.empty()) {
    options.resume = true;
    options.keep = 2;
    options.checkpoint_every = std::max<std::int64_t>(1, steps / kCheckpoints);
    recorder = std::make_unique<report::Recorder>(
        options.run, [](const std::string& text) { report::put(stderr, text + "\n"); });
    all.push_back(recorder.get());
  }
  report::Observers observers(all);
  Result result = train(options, data, observers);
  if (recorder) {
    const report::Run run = report::read_run(options.run);
    take_all(curves, run);
    // The run had already finished but was not recorded. Its speed is in its folder.
    if (result.images_per_second == 0) {
      result.images_per_second = run.result.images_per_second;
      result.peak_mib = run.result.peak_mib;
    }
  }
  if (result.status != "finished") result.test_error = result.recalibrated_test_error = kNotDone;
  return {.trial = {.cell = cell,
                    .seed = options.seed,
                    .result = result,
                    .at = thinned(curves.at),
                    .loss = thinned(curves.loss),
                    .gradient = thinned(curves.gradient),
                    .test_errors = thinned(curves.test_errors),
                    .recalibrated_errors = thinned(curves.recalibrated_errors)},
          .data = description_of(data),
          .device = curves.device};
}

Json to_json(const TrialOutcome& outcome) {
  return {{"trial", to_json(outcome.trial)},
          {"data", to_json(outcome.data)},
          {"device", outcome.device}};
}

TrialOutcome outcome_of(const Json& json) {
  return {trial_of(json.at("trial")), data_of(json.at("data")),
          json.at("device").get<std::string>()};
}

}  // namespace keel::lab::reproduce
