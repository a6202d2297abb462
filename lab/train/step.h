#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "lab/data/augment.h"
#include "lab/models/resnet.h"
#include "lab/processes/processes.h"
#include "lab/train/flat_parameters.h"
#include "lab/train/graph.h"
#include "lab/train/options.h"

namespace keel::lab {

/// What the steps leave on the device: sums since start_interval().
struct Readings {
  double loss_sum = 0;
  double error_sum = 0;      ///< wrong answers
  double gradient_norm = 0;  ///< the largest, of the parameters before the first layer under test
  std::int64_t good_steps = 0;  ///< since the run's start, up to the first non-finite one
  bool stop = false;            ///< several processes: one of them was told to stop
};

struct Batch {
  torch::Tensor images, labels;
};

/// One training step: augmentation, forward, backward, optimiser, measurements. It never waits for
/// the device; the host only sets what the step reads (which images, which rate). On CUDA the first
/// steps run as they are, then the step is captured and replayed: the same operations on the same
/// numbers.
///
/// From the first step with a non-finite loss or gradient on, parameters stay as they are.
///
/// Of several processes each takes its part of every batch. Gradients, loss and errors are summed, so
/// that all of them make the same step and read the same numbers: those of one process with the batch.
class TrainingStep {
 public:
  static constexpr std::int64_t kStepsBeforeCapture = 4;
  /// c10d's Reducer times its first ten steps, with events that a graph cannot hold.
  static constexpr std::int64_t kSharedStepsBeforeCapture = 12;

  /// `images` and `model` are on `device`. The model's parameters become views (FlatParameters).
  /// `processes`: those that train together, connected; none: this one alone.
  TrainingStep(ResNet model, Images images, const AugmentOptions& augmentation,
               const TrainOptions& options, torch::Device device, Processes* processes = nullptr);

  std::int64_t batches() const { return images_.count() / options_.batch; }

  /// Shuffles, by (seed, epoch) alone.
  void start_epoch(std::int64_t epoch);
  /// One step on the epoch's batch number `batch`. `stop`: tell the other processes to stop.
  void run(std::int64_t batch, double rate, bool stop = false);

  /// Waits for the device.
  Readings read() const;
  void start_interval();
  void restore(const Readings& readings);

  /// The parts of a step, for whoever looks for the place where it went wrong.
  void select(std::int64_t batch);
  Batch selected() const;
  torch::Tensor forward(const torch::Tensor& images);
  /// The mean over the batch; of several processes, this one's share of it.
  torch::Tensor loss(const torch::Tensor& logits, const torch::Tensor& labels) const;
  /// Leaves the gradients where parameters().gather_gradients() finds them.
  void backward(const torch::Tensor& loss);

  ResNet& model() { return model_; }
  const Images& images() const { return images_; }
  FlatParameters& parameters() { return parameters_; }
  const TrainOptions& options() const { return options_; }
  torch::Device device() const { return device_; }
  Processes* processes() const { return processes_; }

 private:
  void step();
  void measure(torch::Tensor loss, torch::Tensor errors);

  ResNet model_;
  Images images_;
  AugmentOptions augmentation_;
  TrainOptions options_;
  torch::Device device_;
  Processes* processes_;
  std::int64_t first_ = 0, size_ = 0;  ///< this process's part of a batch
  FlatParameters parameters_;
  std::unique_ptr<GradientSum> gradient_sum_;
  std::size_t before_layer_ = 0;  ///< parameters, before the first layer under test

  // What the host sets.
  torch::Tensor order_, indices_, epoch_, rate_, stop_;
  // What it reads: loss, errors, gradient norm, good steps, requests to stop.
  torch::Tensor meter_, loss_sum_, error_sum_, gradient_norm_, good_steps_, stops_;
  torch::Tensor halted_;

  bool fused_;                ///< the step's end in the kernels of fused_step.h
  torch::Tensor not_finite_;  ///< theirs
  std::shared_ptr<WeightGradients> weight_gradients_;  ///< null: autograd computes them
  bool use_graph_;
  std::int64_t runs_ = 0;
  std::unique_ptr<StepGraph> graph_;
};

/// Whether steps of these options end in the kernels of fused_step.h on that device. Of several processes they do not:
/// those sum gradients parameter by parameter.
bool uses_fused_step(const TrainOptions& options, torch::Device device, const Processes* processes);

/// Whether steps of these options are captured on that device.
bool uses_graph(const TrainOptions& options, torch::Device device);

/// "auto" is CUDA where there is one. `index`: which of a machine's, a process's LOCAL_RANK. Throws
/// keel::Error where CUDA is asked for and is not there.
torch::Device device_of(const TrainOptions& options, std::int64_t index = 0);

/// LibTorch's settings for a run's precision, as they were before when this goes. Throws keel::Error where the device
/// cannot compute in it.
class Precision {
 public:
  Precision(const TrainOptions& options, torch::Device device);
  ~Precision();
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

 private:
  bool tf32_products_, tf32_convolutions_, benchmark_, deterministic_;
};

}  // namespace keel::lab
