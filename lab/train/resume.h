#pragma once

// Transfers state between a checkpoint and a run in progress.

#include "lab/train/checkpoint.h"
#include "lab/train/step.h"

namespace keel::lab {

/// Throws keel::Error unless the checkpoint's run has the same data, and OtherOptions unless it has the same options,
/// except options that do not affect the numbers (where to write, how often, on which device).
void require_same_run(const Checkpoint& checkpoint, const TrainOptions& options,
                      const DataSet& data);

inline constexpr const char* kRandomState = "random.cpu";
void set_random_state(const torch::Tensor& state);

/// All tensors that a run changes: parameters, buffers, momenta, random state.
NamedTensors tensors_of(TrainingStep& training);
void restore_tensors(const SafeTensors& tensors, TrainingStep& training);

}  // namespace keel::lab
