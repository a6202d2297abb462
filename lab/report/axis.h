#pragma once

// Axes of charts: maps numbers to positions and chooses ticks.

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

  /// About `count` ticks at most, with labels that do not overlap.
  std::vector<Tick> ticks(int count) const;

 private:
  Kind kind_;
  bool percent_;
  bool zero_line_ = false;
  double low_ = 0, high_ = 1;  // logarithmic: exponents of ten
};

}  // namespace keel::lab::report
