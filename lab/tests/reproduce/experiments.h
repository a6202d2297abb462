#pragma once

#include <filesystem>

namespace keel::lab::reproduce {

/// The recipes and results that are in the tree.
inline const std::filesystem::path kExperiments = KEEL_EXPERIMENTS;

}  // namespace keel::lab::reproduce
