#pragma once

// The charts of groups of runs.

#include <string>
#include <utility>
#include <vector>

#include "lab/report/groups.h"
#include "lab/report/picture.h"

namespace keel::lab::report {

/// Each with its title.
using Charts = std::vector<std::pair<std::string, Chart>>;

/// Curves over epochs and steps, without those that no run has numbers for.
Charts curve_charts(const std::vector<Group>& groups);

/// The eigenvalues of each layer's covariance, of the first run of each group, in network order.
Charts spectrum_charts(const std::vector<Group>& groups);

/// The last test error of each group: a dot for each seed, and where there are several, a bar from the mean to one
/// standard deviation on either side. A group's colour is its place. The svg is empty if there is none.
Panel final_error_panel(const std::vector<Group>& groups);

}  // namespace keel::lab::report
