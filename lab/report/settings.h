#pragma once

#include <string>

#include "lab/train/options.h"

namespace keel::lab::report {

/// All options as TOML, each below a comment with its meaning and valid values. Reading it back with --config gives
/// the same options, except the run folder and --resume, which belong to one call.
std::string toml(const TrainOptions& options);

/// The name of the layer under test, e.g. "ZCA d=16, power iteration".
std::string layer_name(const TrainOptions& options);

/// "0 ... 1", "at least 1", "a, b or c"; empty if everything is valid.
std::string valid_text(const Range& range);
std::string valid_text(const OneOf& choice);
std::string valid_text(const Anything&);

}  // namespace keel::lab::report
