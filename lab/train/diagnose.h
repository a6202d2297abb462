#pragma once

#include <cstdint>

#include "lab/train/step.h"
#include "lab/train/trainer.h"

namespace keel::lab {

/// Repeats the step on the selected batch, without its update, and finds where a non-finite number
/// first appears: the first layer with such an output, or, if the loss is finite, the first layer on
/// the way back that got finite gradients and gave others. `step`: its number, counted from 1. Of
/// several processes all must call it, and all get the same answer, whichever has the bad number.
Failure diagnose(TrainingStep& training, std::int64_t step);

}  // namespace keel::lab
