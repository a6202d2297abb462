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

  /// Covers all finite `values`. A linear axis with `from_zero` starts at 0 where no value is
  /// negative. A logarithmic one covers whole decades; zeros, of which repeated eigenvalues make
  /// plenty, lie on a line of their own below the last decade.
  Axis(Kind kind, const std::vector<double>& values, bool from_zero, bool percent = false);

  /// In [0, 1] for numbers the axis covers; NaN where the axis has no place for the number.
  double operator()(double value) const;

  /// At most about `count` ticks, whose labels keep apart.
  std::vector<Tick> ticks(int count) const;

 private:
  Kind kind_;
  bool percent_;
  bool zero_line_ = false;
  double low_ = 0, high_ = 1;  // of a logarithmic axis: exponents of ten
};

}  // namespace keel::lab::report
