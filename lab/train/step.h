#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>

#include "lab/data/augment.h"
#include "lab/models/resnet.h"
#include "lab/train/flat_parameters.h"
#include "lab/train/graph.h"
#include "lab/train/options.h"

namespace keel::lab {

/// What the steps leave on the device: sums since start_interval().
struct Readings {
  double loss_sum = 0;
  double error_sum = 0;         ///< wrong answers
  double gradient_norm = 0;     ///< the largest, of the parameters before the first norm
  std::int64_t good_steps = 0;  ///< since the run's start, up to the first non-finite one
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
class TrainingStep {
 public:
  static constexpr std::int64_t kStepsBeforeCapture = 4;

  /// `images` and `model` are on `device`. The model's parameters become views (FlatParameters).
  TrainingStep(ResNet model, Images images, const AugmentOptions& augmentation,
               const TrainOptions& options, torch::Device device);

  std::int64_t batches() const { return images_.count() / options_.batch; }

  /// Shuffles, by (seed, epoch) alone.
  void start_epoch(std::int64_t epoch);
  /// One step on the epoch's batch number `batch`.
  void run(std::int64_t batch, double rate);

  /// Waits for the device.
  Readings read() const;
  void start_interval();
  void restore(const Readings& readings);

  /// The parts of a step, for whoever looks for the place where it went wrong.
  void select(std::int64_t batch);
  Batch selected() const;
  torch::Tensor loss(const torch::Tensor& logits, const torch::Tensor& labels) const;

  ResNet& model() { return model_; }
  FlatParameters& parameters() { return parameters_; }
  const TrainOptions& options() const { return options_; }
  torch::Device device() const { return device_; }

 private:
  void step();
  void measure(const torch::Tensor& loss, const torch::Tensor& logits, const torch::Tensor& labels);

  ResNet model_;
  Images images_;
  AugmentOptions augmentation_;
  TrainOptions options_;
  torch::Device device_;
  FlatParameters parameters_;
  std::size_t before_norm_ = 0;  ///< parameters

  // What the host sets.
  torch::Tensor order_, indices_, epoch_, rate_;
  // What it reads: loss, errors, gradient norm, good steps.
  torch::Tensor meter_, loss_sum_, error_sum_, gradient_norm_, good_steps_;
  torch::Tensor halted_;

  bool use_graph_;
  std::int64_t runs_ = 0;
  std::unique_ptr<StepGraph> graph_;
};

/// Whether steps of these options are captured on that device.
bool uses_graph(const TrainOptions& options, torch::Device device);

/// "auto" is CUDA where there is one. Throws keel::Error where CUDA is asked for and is not there.
torch::Device device_of(const TrainOptions& options);

/// LibTorch's settings for a run's precision, as they were before when this goes.
class Precision {
 public:
  explicit Precision(const TrainOptions& options);
  ~Precision();
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

 private:
  bool tf32_products_, tf32_convolutions_, benchmark_, deterministic_;
};

}  // namespace keel::lab
