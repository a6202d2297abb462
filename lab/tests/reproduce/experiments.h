#pragma once

#include <filesystem>

namespace keel::lab::reproduce {

/// The recipes and results in the source tree.
inline const std::filesystem::path kExperiments = KEEL_EXPERIMENTS;

}  // namespace keel::lab::reproduce
