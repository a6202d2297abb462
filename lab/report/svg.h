#pragma once

// The pictures of the report as inline SVG. Colours are the page's CSS variables, so one drawing
// serves the light and the dark theme.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/report/axis.h"

namespace keel::lab::report {

/// The number of colours the page's style defines (--c0 ...); later curves repeat them dashed.
constexpr int kColours = 8;

struct Curve {
  std::string label;                ///< shown when the pointer rests on the curve
  int colour = 0;                   ///< counted over all curves of the page
  std::vector<double> x, y;         ///< a y that is not finite breaks the line
  std::vector<double> low, high;    ///< a band around the line; empty: none
  std::optional<double> failed_at;  ///< an x that is marked with a cross: the run ended there
};

struct Chart {
  std::string description;  ///< read out by screen readers
  std::string x_label;
  Axis::Kind y_axis = Axis::Kind::linear;
  bool percent = false;            ///< y are fractions, written in percent
  bool from_zero = true;           ///< the y axis starts at 0 where no value is negative
  bool points = false;             ///< dots on the line, for spectra
  std::vector<Curve> curves = {};  ///< drawn in this order, the last on top
};

/// 340 units wide and meant to be shown 300 to 450 pixels wide: legible on a phone and on a desk.
std::string svg(const Chart& chart);

/// A square matrix as coloured cells, `limit` and -`limit` the strongest colours. More than 96 rows
/// are drawn as averages of neighbours.
std::string matrix_svg(const std::vector<std::vector<double>>& matrix, double limit,
                       const std::string& description);

/// The key of matrix_svg: a strip from -limit to limit.
std::string matrix_key_svg(double limit);

constexpr double kLetter = 6.4;  ///< a generous width of a character at font size 11

/// The line of a curve as it is drawn, for the legend.
std::string swatch_svg(int colour);

}  // namespace keel::lab::report
