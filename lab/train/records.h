#pragma once

// The records of a run. Observers receive them, metrics.jsonl and result.json hold them, and reports and
// experiments read them. Does not use torch.

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace keel::lab {

constexpr double kNotDone = std::numeric_limits<double>::quiet_NaN();

/// Written every log_every steps.
struct StepRecord {
  std::int64_t step = 0;   ///< steps done; 1 after the first
  std::int64_t epoch = 0;  ///< from 0
  double loss = 0;         ///< mean over the steps since the last record
  double error = 0;        ///< share of wrong answers, in [0, 1], over the same steps
  double learning_rate = 0;
  /// The largest gradient norm since the last record, over the parameters before the first layer under test. This
  /// gradient has passed through the layer.
  double gradient_norm_layer = 0;
  double images_per_second = 0;
  double rank =
      kNotDone;  ///< directions kept, smallest of all groups; NaN if the layer has no rank
  double smallest_gap = 0;  ///< smallest within any group; NaN if the layer has no eigenvalues
};

struct EpochRecord {
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t step = 0;   ///< steps done
  double train_loss = 0, train_error = 0;
  double test_loss = 0, test_error = 0;  ///< NaN: not evaluated after this epoch
  double seconds = 0;                    ///< training and evaluation
  /// Results with recomputed running statistics (options.recalibrate), and the seconds for recomputing and the second
  /// evaluation. NaN: not done.
  double recalibrated_test_loss = kNotDone, recalibrated_test_error = kNotDone;
  double recalibration_seconds = kNotDone;
  /// Results with statistics that follow the weights (options.follow). NaN: not done.
  double followed_test_loss = kNotDone, followed_test_error = kNotDone;
};

/// Where a run failed.
struct Failure {
  std::int64_t step = 0;  ///< the first step, counted from 1, with a non-finite loss or gradient
  std::string where;      ///< "loss", or "gradient of PARAMETER"
  std::string layer;      ///< the layer where it began
  /// The smallest gap between eigenvalues at that step, in the layer where it began or else in all layers under test.
  /// NaN if there are none.
  double smallest_gap = 0;
  /// StepRecord::gradient_norm_layer of the last steps one by one, that of this step last.
  std::vector<double> gradients = {};
  std::string what;  ///< one sentence for people
};

struct Result {
  std::string status;      ///< finished, failed, interrupted
  std::int64_t steps = 0;  ///< done; for a failed run, up to the failure
  std::int64_t epochs = 0;
  /// Of the last finished epoch; NaN before the first.
  double train_loss = kNotDone, train_error = kNotDone;
  double test_loss = kNotDone, test_error = kNotDone;  ///< of the last evaluation
  double best_test_error = kNotDone;
  double recalibrated_test_error = kNotDone;  ///< of the last evaluation, with options.recalibrate
  double followed_test_error = kNotDone;      ///< of the last evaluation, with options.follow
  double images_per_second = 0;  ///< training steps of this process, without evaluation
  double peak_mib = 0;           ///< CUDA: peak allocation up to the first record; CPU: 0
  double seconds = 0;            ///< in this process
  double recalibration_seconds =
      0;  ///< part of `seconds`: recomputing statistics and evaluating with them
  std::optional<Failure> failure = std::nullopt;
  /// Why the last checkpoint could not be written. Empty if it was written or not requested.
  std::string unsaved = {};
};

/// Non-finite numbers become null.
nlohmann::ordered_json to_json(const StepRecord& record);
nlohmann::ordered_json to_json(const EpochRecord& record);
nlohmann::ordered_json to_json(const Failure& failure);
nlohmann::ordered_json to_json(const Result& result);

/// Numbers that are missing or null become NaN, other fields 0 or empty.
StepRecord step_record(const nlohmann::ordered_json& json);
EpochRecord epoch_record(const nlohmann::ordered_json& json);
Failure failure_record(const nlohmann::ordered_json& json);
Result result_record(const nlohmann::ordered_json& json);

}  // namespace keel::lab
