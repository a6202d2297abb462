#pragma once

// Between a checkpoint and a run in progress.

#include "lab/train/checkpoint.h"
#include "lab/train/step.h"

namespace keel::lab {

/// Throws keel::Error unless the checkpoint is of a run with the same options, but for those that
/// change no number (where to write, how often, on which device), and the same data.
void require_same_run(const Checkpoint& checkpoint, const TrainOptions& options,
                      const DataSet& data);

inline constexpr const char* kRandomState = "random.cpu";
void set_random_state(const torch::Tensor& state);

/// Everything that a run changes: parameters, buffers, momenta, random state.
NamedTensors tensors_of(TrainingStep& training);
void restore_tensors(const SafeTensors& tensors, TrainingStep& training);

}  // namespace keel::lab
