#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/data/augment.h"
#include "lab/models/resnet.h"
#include "lab/processes/processes.h"
#include "lab/train/checkpoint.h"
#include "lab/train/layer_state.h"
#include "lab/train/options.h"
#include "lab/train/records.h"

namespace keel::lab {

/// The description of a run, known before its first step.
struct RunInfo {
  TrainOptions options;  ///< resolved: with the data's classes and the device
  std::string device;    ///< "cpu", or the GPU's name
  std::int64_t parameters = 0;
  std::int64_t train_images = 0, test_images = 0;
  std::int64_t steps_per_epoch = 0, steps = 0;  ///< of the whole run
  std::int64_t first_step = 0;                  ///< steps done before: 0, or where the run resumes
};

/// Receives all events of a run, on the calling thread. An exception ends the run.
struct Observer {
  virtual ~Observer() = default;
  virtual void on_start(const RunInfo&) {}
  virtual void on_step(const StepRecord&) {}
  virtual void on_epoch(const EpochRecord&) {}
  /// Called for each layer under test, at the end of each epoch and at a failure. `step`: steps done.
  virtual void on_layer(const LayerState&, std::int64_t /*step*/) {}
  virtual void on_failure(const Failure&) {}
  /// A warning that does not stop the run, such as a skipped checkpoint or a full disk.
  virtual void on_message(const std::string&) {}
  virtual void on_finish(const Result&) {}
};

/// Throws keel::Error unless the data has a batch of images, a batch has enough of them for the processes and norms, and the
/// norms can be shared by the processes.
/// train() checks this too.
void require_batches(const TrainOptions& options, const DataSet& data, std::int64_t processes = 1);

/// Trains a network.
///
/// - Writes only checkpoints/ and spectrum.json into options.run. The observer writes config, metrics and result.
/// - SIGINT and SIGTERM end the run after the current step, with a checkpoint. A second signal ends the process. The
///   handlers are installed only while this function runs.
/// - options.resume continues from the newest good checkpoint, or starts anew if there is none. On the CPU the result
///   is bitwise that of an uninterrupted run.
/// - options.recalibrate evaluates twice: with the running statistics of training and with recomputed ones. Training
///   continues with its own and is bitwise unaffected. The last checkpoint has the recomputed statistics, and says
///   so.
/// - options.follow evaluates once more, with statistics that follow the weights. Training is bitwise unaffected, but
///   for the choice of algorithms on a GPU.
/// - A step with a non-finite loss or gradient changes no parameter and ends the run as failed.
/// - Errors (options, data, memory) are thrown.
Result train(const TrainOptions& options, const DataSet& data, Observer& observer);

/// Trains as one of several processes. Each gets the same data and options (except options that do not affect the
/// numbers) and takes its part of every batch. Up to rounding, the run is that of one process with the same options.
///
/// - Only rank 0 writes files and calls its observer. The others need neither folder nor checkpoint: rank 0 sends
///   them the initial state. A run can be resumed with any number of processes.
/// - A signal to one process ends the run on all processes, after the same step (on a GPU at the next record). Further
///   signals change nothing: Ctrl-C reaches a process twice, from the terminal and from torchrun.
/// - Throws if another process is gone, hangs (processes.broken()) or has different options (ProcessError).
Result train(const TrainOptions& options, const DataSet& data, Observer& observer,
             Processes& processes);

struct Evaluation {
  double loss = 0, error = 0;
  std::int64_t images = 0;
  double images_per_second = 0;
};

/// Runs the network on the images as training's evaluation does: running statistics, no augmentation. `options` gives
/// device, precision, memory order and batch size; the data set gives the normalisation.
///
/// With `recalibrate_at` it first recomputes the running statistics, from options.recalibrate batches of training images
/// and with random numbers that depend on that step. The model keeps the new statistics.
Evaluation evaluate(ResNet model, const Images& images, const DataSet& data,
                    const TrainOptions& options, std::optional<std::int64_t> recalibrate_at = {});

/// evaluate() for a network and images that are already on the device. With several processes, each passes its own
/// part of the images and all get the overall result.
Evaluation evaluate_there(ResNet& model, const Images& images, const AugmentOptions& normalisation,
                          const TrainOptions& options, torch::Device device,
                          Processes* processes = nullptr);

/// Maps labels and normalisation to those of the checkpoint's network. Classes are matched by name. Throws keel::Error if
/// the network does not know a class.
void as_trained_on(DataSet& data, const Checkpoint& checkpoint);

/// Throws keel::Error unless every label is one of the classes.
void require_labels(const Images& images, std::int64_t classes);

}  // namespace keel::lab
