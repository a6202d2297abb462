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

/// Curves over epochs and steps; those no run has numbers for are left out. A group's colour is its
/// place among the groups.
std::vector<Figure> curve_figures(const std::vector<Group>& groups);

/// The last test error of each group, every seed a dot, with mean and deviation.
Figure final_error_figure(const std::vector<Group>& groups);

/// The layers with a spectrum, by their names in the network: those of the first run of each group, in their order.
std::vector<std::string> layers_with_spectra(const std::vector<Group>& groups);

/// Eigenvalues of that layer's covariance. Empty svg where no run has any.
Figure spectrum_figure(const std::vector<Group>& groups, const std::string& layer);

/// The covariance of one layer as a matrix of all channels: blocks where the layer has groups. Empty where the run has
/// no such layer.
std::vector<std::vector<double>> covariance_of(const Run& run, const std::string& layer);

}  // namespace keel::lab::report
