#pragma once

#include <cstdint>

#include "lab/train/step.h"
#include "lab/train/trainer.h"

namespace keel::lab {

/// Repeats the step on the selected batch, without the update, and finds where a non-finite number first appears: the
/// first layer with a non-finite output or, if the loss is finite, the first layer in backward that got finite
/// gradients and returned non-finite ones. `step` counts from 1. All processes must call it, and all get the same
/// answer.
Failure diagnose(TrainingStep& training, std::int64_t step);

}  // namespace keel::lab
