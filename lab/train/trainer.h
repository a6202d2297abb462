#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lab/data/data_set.h"
#include "lab/models/resnet.h"
#include "lab/processes/processes.h"
#include "lab/train/layer_state.h"
#include "lab/train/options.h"

namespace keel::lab {

/// What a run is, known before its first step.
struct RunInfo {
  TrainOptions options;  ///< resolved: the data's classes, the device
  std::string device;    ///< "cpu", or the GPU's name
  std::string layer;     ///< the layer under test, in words
  std::int64_t parameters = 0;
  std::int64_t train_images = 0, test_images = 0;
  std::int64_t steps_per_epoch = 0, steps = 0;  ///< of the whole run
  std::int64_t first_step = 0;                  ///< steps done before: 0, or where the run resumes
};

/// Written every log_every steps.
struct StepRecord {
  std::int64_t step = 0;   ///< steps done, 1 after the first
  std::int64_t epoch = 0;  ///< from 0
  double loss = 0;         ///< means over the steps since the last record
  double error = 0;        ///< share of wrong answers, in [0, 1]
  double learning_rate = 0;
  /// Norm of the gradient that passed the layer (of the parameters before the first one under test): the largest
  /// since the last record.
  double gradient_norm_layer = 0;
  double images_per_second = 0;
  std::int64_t rank = 0;  ///< directions kept, least of all groups; 0: the layer has no such thing
  double smallest_gap = 0;  ///< between eigenvalues of one group, least of all; NaN: no such thing
};

constexpr double kNotDone = std::numeric_limits<double>::quiet_NaN();

struct EpochRecord {
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t step = 0;   ///< steps done
  double train_loss = 0, train_error = 0;
  double test_loss = 0, test_error = 0;  ///< NaN: not evaluated after this one
  double seconds = 0;                    ///< training and evaluation
  /// With running statistics made again (options.recalibrate), and the seconds that this took: making
  /// them and evaluating a second time. NaN: not done.
  double recalibrated_test_loss = kNotDone, recalibrated_test_error = kNotDone;
  double recalibration_seconds = kNotDone;
};

/// Where a run went wrong for good.
struct Failure {
  std::int64_t step = 0;  ///< the first step, counted from 1, with a non-finite loss or gradient
  std::string where;      ///< "loss", or "gradient of PARAMETER"
  std::string layer;      ///< the layer it began in
  /// Of the eigenvalues at that step: of the layer it began in, or else the least of those under test; NaN: no such thing.
  double smallest_gap = 0;
  std::string what;  ///< one sentence for people
};

struct Result {
  std::string status;      ///< finished, failed, interrupted
  std::int64_t steps = 0;  ///< done; of a failed run, up to the failure
  std::int64_t epochs = 0;
  double train_loss = 0, train_error = 0;  ///< of the last epoch done; NaN before the first
  double test_loss = 0, test_error = 0;    ///< of the last evaluation
  double best_test_error = 0;
  double recalibrated_test_error = kNotDone;  ///< of the last evaluation, where options.recalibrate
  double images_per_second = 0;  ///< of the training steps of this process, evaluation left out
  double peak_mib = 0;           ///< CUDA: allocated at most, up to the first record; CPU: 0
  double seconds = 0;            ///< of this process
  double recalibration_seconds =
      0;  ///< of them: statistics made again, and the evaluations with them
  std::optional<Failure> failure;
  /// Why the last checkpoint, with what the run has come to, is not on the disk. Empty: it is, or none
  /// was asked for.
  std::string unsaved;
};

/// Numbers that are not finite are null.
nlohmann::json to_json(const Failure& failure);
nlohmann::json to_json(const Result& result);

/// Told of everything that happens in a run, on the calling thread. Exceptions end the run.
struct Observer {
  virtual ~Observer() = default;
  virtual void on_start(const RunInfo&) {}
  virtual void on_step(const StepRecord&) {}
  virtual void on_epoch(const EpochRecord&) {}
  /// Of each layer under test, at each epoch's end, at the run's end and at a failure. `step`: steps done.
  virtual void on_layer(const LayerState&, std::int64_t /*step*/) {}
  virtual void on_failure(const Failure&) {}
  virtual void on_checkpoint(const std::filesystem::path&, std::int64_t /*step*/) {}
  /// What people should know and no run should stop for: a checkpoint skipped, a full disk.
  virtual void on_message(const std::string&) {}
  virtual void on_finish(const Result&) {}
};

/// Trains a network.
///
/// - Writes checkpoints/ and spectrum.json into options.run and nothing else: config, metrics and
///   result are the observer's.
/// - SIGINT and SIGTERM end the run after the step it is in, with a checkpoint; a second one ends the
///   process. The handlers are there only while this function runs.
/// - options.resume: goes on from the newest good checkpoint, or from the start where there is none.
///   On the CPU the result is, to the last bit, that of a run never interrupted.
/// - options.recalibrate: each evaluation is made twice, with the running statistics as training left them and with
///   statistics made again. Training goes on with its own, to the last bit as without; the last checkpoint
///   has the new ones, and says so.
/// - A step with a non-finite loss or gradient changes no parameter and ends the run, failed.
/// - Errors (options, data, memory) are thrown.
Result train(const TrainOptions& options, const DataSet& data, Observer& observer);

/// One of several processes that train together. Each is given the same options (but for those that
/// change no number) and the same data, and takes its part of every batch; the run is that of one
/// process with the same options, to rounding.
///
/// - Only process 0's observer is told anything, and only process 0 writes. The others need neither folder
///   nor checkpoint: they get the start from process 0. A run can be resumed with any number of processes.
/// - A signal to one ends the run on all, after the same step (on a GPU: at the next record).
/// - ProcessError: another process is gone, hangs or was told something else; the message names it.
Result train(const TrainOptions& options, const DataSet& data, Observer& observer,
             Processes& processes);

struct Evaluation {
  double loss = 0, error = 0;
  std::int64_t images = 0;
  torch::Tensor confusion;  ///< (classes, classes) int64 on the CPU: true class, answer
  double images_per_second = 0;
};

/// Runs the network on the images as evaluation in training does: running statistics, no
/// augmentation. `options` gives device, precision, order and batch; the data set, what to
/// normalise by.
Evaluation evaluate(ResNet model, const Images& images, const DataSet& data,
                    const TrainOptions& options);

/// The same with running statistics made again first, from options.recalibrate batches of the data's
/// training images: a stream of their own for each `step`. The model keeps them.
Evaluation evaluate_recalibrated(ResNet model, const Images& images, const DataSet& data,
                                 const TrainOptions& options, std::int64_t step);

}  // namespace keel::lab
