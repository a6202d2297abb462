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

/// The chart of that title, which is added if it is missing.
Chart& chart_of(Charts& charts, const std::string& title, const Chart& added);

/// The errors at the end, and curves over epochs and steps, without charts that no run has numbers for.
Charts curve_charts(const std::vector<Group>& groups);

/// The eigenvalues of each layer's covariance, of the first run of each group, in network order.
Charts spectrum_charts(const std::vector<Group>& groups);

/// The last test error of each group over its place: a dot for each run, and a line from the smallest to the largest.
Chart final_errors(const std::vector<Group>& groups);

}  // namespace keel::lab::report
