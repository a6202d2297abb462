#pragma once

// The ten classes of the synthetic set: shapes in a unit disc, as distance functions.

#include <string>
#include <vector>

namespace keel::lab {

const std::vector<std::string>& shape_names();

/// How far (x, y) is outside the shape of that number (negative: inside), in units of its radius.
/// Right near the outline, where it decides; only its sign elsewhere.
double shape_distance(int shape, double x, double y);

}  // namespace keel::lab
