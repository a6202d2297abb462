#pragma once

#include <cstdint>

#include "lab/train/options.h"

namespace keel::lab {

/// The learning rate of the step after `done` steps, of `steps` in all.
///
/// - one_cycle: from 1/25 of the highest rate up to it over the first `warm_up` of the run and down
///   to 1/250,000 of it, along half a cosine each.
/// - paper: the highest rate, a tenth of it from 2/7 of the run on, and again at 4/7 and 6/7: epochs
///   100, 200 and 300 of 350.
double learning_rate(const TrainOptions& options, std::int64_t done, std::int64_t steps);

}  // namespace keel::lab
