#pragma once

// Charts of lab/report as separate SVG files, for Markdown pages.

#include <string>
#include <vector>

#include "lab/report/svg.h"

namespace keel::lab::reproduce {

struct Panel {
  std::string title;
  std::string svg;  ///< drawn by lab/report
};

struct Key {
  std::string label;
  int colour = 0;
};

/// The panels in two columns, with a key below. Colours follow the reader's light or dark theme.
std::string picture(const std::vector<Panel>& panels, const std::vector<Key>& keys = {});

/// One panel per chart, with a key of all curves. Curves with the same label get the same colour.
std::string picture(std::vector<std::pair<std::string, report::Chart>> charts);

/// f over [0, 1] x [0, 1] as a grid of lines in perspective; `left` and `right` label the axes.
std::string surface_svg(const std::vector<std::vector<double>>& heights, const std::string& left,
                        const std::string& right, const std::string& description);

}  // namespace keel::lab::reproduce
