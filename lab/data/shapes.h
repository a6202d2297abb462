#pragma once

// The ten classes of the synthetic set: shapes in a unit disc, as distance functions.

#include <string>
#include <vector>

namespace keel::lab {

const std::vector<std::string>& shape_names();

/// The signed distance of (x, y) from the shape of that number (negative inside), in units of its radius. It is accurate
/// near the outline; elsewhere only its sign is.
double shape_distance(int shape, double x, double y);

}  // namespace keel::lab
