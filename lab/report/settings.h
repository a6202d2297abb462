#pragma once

#include <string>

#include "lab/train/options.h"

namespace keel::lab::report {

/// All options as TOML, each under a comment with its meaning and valid values. What the command line
/// reads back as --config gives the same options: the folder a run writes to, and whether it resumes,
/// belong to one call and are not part of it.
std::string toml(const TrainOptions& options);

/// "ZCA d=16, power iteration": the layer under test.
std::string layer_name(const TrainOptions& options);

/// "0 ... 1", "at least 1", "a, b or c"; nothing where anything goes.
std::string valid_text(const Range& range);
std::string valid_text(const OneOf& choice);
std::string valid_text(const Anything&);

}  // namespace keel::lab::report
