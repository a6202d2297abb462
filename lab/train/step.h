#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lab/data/augment.h"
#include "lab/models/resnet.h"
#include "lab/processes/processes.h"
#include "lab/train/flat_parameters.h"
#include "lab/train/fused_step.h"
#include "lab/train/graph.h"
#include "lab/train/layer_state.h"
#include "lab/train/options.h"
#include "lab/train/records.h"

namespace keel::lab {

/// Measurements of the steps since start_interval(), kept on the device.
struct Readings {
  double loss_sum = 0;
  double error_sum = 0;         ///< number of wrong answers
  double gradient_norm = 0;     ///< the largest; parameters before the first layer under test
  std::int64_t good_steps = 0;  ///< since the start of the run, up to the first non-finite one
  bool stop = false;            ///< several processes: one of them was told to stop
};

struct Batch {
  torch::Tensor images, labels;
};

/// One training step: augmentation, forward, backward, optimiser, measurements. It never synchronises; the host only
/// sets its inputs (which images, which rate). On CUDA the first steps run eagerly. Then the step is captured and
/// replayed, with the same operations on the same numbers.
///
/// From the first step with a non-finite loss or gradient, the parameters no longer change.
///
/// With several processes, each takes its part of every batch. Gradients, loss and errors are summed, so that all
/// processes take the same step and read the same numbers as one process with the whole batch.
class TrainingStep {
 public:
  static constexpr std::int64_t kStepsBeforeCapture = 4;
  static constexpr std::int64_t kRecent = 32;

  /// `images` and `model` must be on `device`. The model's parameters become views (FlatParameters). `processes`: the
  /// connected processes that train together, or null for one process.
  TrainingStep(ResNet model, Images images, const AugmentOptions& augmentation,
               const TrainOptions& options, torch::Device device, Processes* processes = nullptr);

  std::int64_t batches() const { return images_.count() / options_.batch; }

  /// Shuffles the images. The order depends only on (seed, epoch).
  void start_epoch(std::int64_t epoch);
  /// Runs one step on batch number `batch` of the epoch. `stop`: ask all processes to stop.
  void run(std::int64_t batch, double rate, bool stop = false);

  /// Waits for the device.
  Readings read();
  /// The gradient norms of the steps before the one that halted the run, and of that one: at most kRecent, oldest first.
  /// Empty for a run that has not halted. NaN: not known, because the run was resumed.
  std::vector<double> gradients_before_halt();
  void start_interval();
  void restore(const Readings& readings);

  /// All tensors that a run changes: parameters, buffers, momenta, what followed norms know, and the process's random
  /// state. They may be changed from outside.
  NamedTensors state();
  void restore(const SafeTensors& state);

  /// The parts of a step, for diagnose().
  void select(std::int64_t batch);
  Batch selected() const;
  torch::Tensor forward(const torch::Tensor& images);
  /// The mean over the batch. With several processes, this process's share of it.
  torch::Tensor loss(const torch::Tensor& logits, const torch::Tensor& labels) const;
  /// Leaves the gradients where parameters().gather_gradients() finds them.
  void backward(const torch::Tensor& loss);

  /// The parameters may be changed from outside.
  ResNet& model() {
    changed_outside_ = true;
    return model_;
  }
  const Images& images() const { return images_; }
  FlatParameters& parameters() {
    changed_outside_ = true;
    return parameters_;
  }
  const TrainOptions& options() const { return options_; }
  torch::Device device() const { return device_; }
  Processes* processes() const { return processes_; }

 private:
  bool looks(std::int64_t batch) const;
  void step(bool looks);
  void capture_steps();
  void replay_with_a_look();
  /// What the layers under test report of a step.
  std::vector<torch::Tensor> reported() const;
  void measure(torch::Tensor loss, torch::Tensor errors);

  ResNet model_;
  Images images_;
  AugmentOptions augmentation_;
  TrainOptions options_;
  torch::Device device_;
  Processes* processes_;
  std::int64_t first_ = 0, size_ = 0;  ///< this process's part of a batch
  FlatParameters parameters_;
  std::int64_t before_layer_ = 0;  ///< where the parameters of the first layer under test begin

  // Inputs, set by the host.
  torch::Tensor order_, indices_, crops_, rate_, stop_;
  // Outputs, read by the host: loss, errors, gradient norm, good steps, stop requests.
  torch::Tensor meter_, stops_;
  struct {
    torch::Tensor loss_sum, error_sum, gradient_norm, good_steps;  ///< views of meter_
    torch::Tensor halted;                                          ///< bool
    torch::Tensor recent;  ///< the gradient norm of step k (from 0) at k modulo kRecent
  } readings_;
  double rate_now_ = 0;  ///< what rate_ holds

  // A step with the kernels of fused_step.h.
  bool fused_;
  bool narrow_;                  ///< with weights in bfloat16
  torch::Tensor not_finite_;     ///< whether a gradient is not finite, by those kernels
  bool changed_outside_ = true;  ///< perhaps: then the bfloat16 copies of the parameters are old
  bool use_graph_;
  std::int64_t runs_ = 0;
  Replay graph_, looking_graph_;  ///< without and with a look (options.follow)
  std::vector<torch::Tensor> reported_by_looking_;
};

inline constexpr const char* kRandomState = "random.cpu";
void set_random_state(const torch::Tensor& state);

/// Whether steps with these options use the kernels of fused_step.h on this device. Several processes do not: they sum
/// gradients before the optimiser's step.
bool uses_fused_step(const TrainOptions& options, torch::Device device, const Processes* processes);

/// Whether steps with these options are captured on this device. Several processes do not capture them, because NCCL's
/// timeout does not see sums in a replayed graph.
bool uses_graph(const TrainOptions& options, torch::Device device,
                const Processes* processes = nullptr);

/// "auto" means CUDA if available. `index` is the GPU's number, a process's LOCAL_RANK. Throws keel::Error if the
/// options ask for CUDA and it is not available.
torch::Device device_of(const TrainOptions& options, std::int64_t index = 0);

/// Throws keel::Error if the device lacks the precision: tf32, which only GPUs have, or bfloat16 on some CPUs.
void require_precision(const TrainOptions& options, torch::Device device);

/// Why this machine's CPU cannot compute in bfloat16; empty if it can. Tries it once.
const std::string& bfloat16_fault();

/// Scope with LibTorch's settings for the precision of a run. Throws keel::Error if the device does not support it.
class Precision {
 public:
  Precision(const TrainOptions& options, torch::Device device);
  ~Precision();
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

 private:
  bool tf32_products_, tf32_convolutions_, benchmark_, deterministic_;
};

/// Scope in which autocast to bfloat16 is on or off for this device. The end of the scope drops cached casts of
/// weights, so a captured step makes its own.
class Autocast {
 public:
  Autocast(torch::Device device, bool on);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool was_on_;
  torch::Dtype was_type_;
};

/// Repeats the step on the selected batch, without the update, and finds where a non-finite number first appears: the
/// first layer with a non-finite output or, if the loss is finite, the first layer in backward that got finite
/// gradients and returned non-finite ones. `step` counts from 1. All processes must call it, and all get the same
/// answer.
Failure diagnose(TrainingStep& training, std::int64_t step);

}  // namespace keel::lab
