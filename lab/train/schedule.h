#pragma once

#include <cstdint>

#include "lab/train/options.h"

namespace keel::lab {

/// The learning rate of the next step, after `done` of `steps` steps.
///
/// - one_cycle: rises from 1/25 of the highest rate to the highest rate over the first `warm_up` of the run, then
///   falls to 1/250,000 of it. Both parts are half a cosine.
/// - paper: starts at the highest rate and divides it by 10 after 2/7, 4/7 and 6/7 of the run (epochs 100, 200 and
///   300 of 350).
/// - constant: the highest rate.
double learning_rate(const TrainOptions& options, std::int64_t done, std::int64_t steps);

}  // namespace keel::lab
