#pragma once

// The report's charts as inline SVG. Colours are the page's CSS variables, so one drawing serves both the light and
// the dark theme.

#include <optional>
#include <string>
#include <vector>

#include "lab/report/axis.h"

namespace keel::lab::report {

/// The number of colours in the page's style (--c0 ...). Later curves repeat them dashed.
constexpr int kColours = 8;

struct Curve {
  std::string label;                        ///< shown when the pointer is on the curve
  int colour = 0;                           ///< index over all curves of the page
  std::vector<double> x = {}, y = {};       ///< a non-finite y breaks the line
  std::vector<double> low = {}, high = {};  ///< a band around the line; empty: none
  std::optional<double> failed_at = {};     ///< the x where the run failed, marked with a cross
};

struct Chart {
  std::string description;  ///< for screen readers
  std::string x_label;
  Axis::Kind y_axis = Axis::Kind::linear;
  bool percent = false;            ///< y are fractions, shown in percent
  bool from_zero = true;           ///< the y axis starts at 0 if no value is negative
  bool points = false;             ///< dots on the line, for spectra
  std::vector<Curve> curves = {};  ///< drawn in this order, the last on top
};

/// 340 units wide, to be shown 300 to 450 pixels wide: legible on a phone and on a desktop.
std::string svg(const Chart& chart);

/// A square matrix as coloured cells; `limit` and -`limit` have the strongest colours. A matrix of more than 96 rows
/// is averaged over neighbours first.
std::string matrix_svg(const std::vector<std::vector<double>>& matrix, double limit,
                       const std::string& description);

/// The key of matrix_svg: a strip from -limit to limit.
std::string matrix_key_svg(double limit);

constexpr double kLetter = 6.4;  ///< a generous character width at font size 11

/// A sample of a curve's line, for the legend.
std::string swatch_svg(int colour);

}  // namespace keel::lab::report
