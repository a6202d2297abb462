#pragma once

// Charts as SVG. Colours are CSS variables (picture.h), so one drawing serves both the light and the dark theme.

#include <optional>
#include <string>
#include <vector>

namespace keel::lab::report {

struct Tick {
  double value;
  std::string label;
};

/// One axis: maps numbers to [0, 1] and chooses round ticks.
class Axis {
 public:
  enum class Kind { linear, logarithmic };

  /// Covers all finite `values`. A linear axis with `from_zero` starts at 0 if no value is negative. A logarithmic
  /// axis covers whole decades. Zeros (repeated eigenvalues make many) get their own line below the last decade.
  Axis(Kind kind, const std::vector<double>& values, bool from_zero, bool percent = false);

  /// In [0, 1] for numbers that the axis covers; NaN for numbers it cannot show.
  double operator()(double value) const;

  /// About `count` ticks at most, with labels that do not overlap. Whole numbers have whole ticks.
  std::vector<Tick> ticks(int count) const;

 private:
  Kind kind_;
  bool percent_;
  bool zero_line_ = false, whole_ = true;
  double low_ = 0, high_ = 1;  // logarithmic: exponents of ten
};

/// The number of colours (--c0 ...). Later curves repeat them dashed.
constexpr int kColours = 8;

struct Curve {
  std::string label;                        ///< shown when the pointer is on the curve
  int colour = 0;                           ///< index over all curves of a page
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
  bool values = false;             ///< the pointer shows the numbers of each point
  std::vector<Curve> curves = {};  ///< drawn in this order, the last on top
};

/// 340 units wide, to be shown 300 to 450 pixels wide: legible on a phone and on a desktop.
std::string svg(const Chart& chart);

constexpr double kLetter = 6.4;  ///< a generous character width at font size 11

/// A sample of a curve's line, for the legend.
std::string swatch_svg(int colour);

}  // namespace keel::lab::report
