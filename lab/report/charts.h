#pragma once

// The charts of the report page.

#include <string>
#include <vector>

#include "lab/report/groups.h"
#include "lab/report/svg.h"

namespace keel::lab::report {

struct Figure {
  std::string title, caption;
  std::string svg;
};

/// Curves over epochs and steps, without those that no run has numbers for. A group's colour is its index.
std::vector<Figure> curve_figures(const std::vector<Group>& groups);

/// The last test error of each group: a dot per seed, with mean and deviation.
Figure final_error_figure(const std::vector<Group>& groups);

/// The names of the layers with a spectrum, taken from the first run of each group, in network order.
std::vector<std::string> layers_with_spectra(const std::vector<Group>& groups);

/// Eigenvalues of that layer's covariance. The svg is empty if no run has any.
Figure spectrum_figure(const std::vector<Group>& groups, const std::string& layer);

/// The covariance of one layer as a matrix over all channels, with a block per group. Empty if the run has no such
/// layer.
std::vector<std::vector<double>> covariance_of(const Run& run, const std::string& layer);

}  // namespace keel::lab::report
