#include "lab/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lab/report/wording.h"

namespace keel::lab::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// The smallest of 1, 2, 5 times a power of ten that is at least `step`.
double round_step(double step) {
  const double decade = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * decade >= step * (1 - 1e-9)) return factor * decade;
  return 10 * decade;
}

}  // namespace

Axis::Axis(Kind kind, const std::vector<double>& values, bool from_zero, bool percent)
    : kind_(kind), percent_(percent) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (double value : values) {
    if (!std::isfinite(value)) continue;
    if (kind_ == Kind::logarithmic) {
      if (value < 0) continue;
      if (value == 0) {
        zero_line_ = true;
        continue;
      }
      value = std::log10(value);
    }
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) low = high = 0;  // no finite values
  if (kind_ == Kind::logarithmic) {
    low_ = std::floor(low + 1e-9);
    high_ = std::max(std::ceil(high - 1e-9), low_ + 1);
    if (zero_line_) low_ -= std::max(1.0, 0.12 * (high_ - low_));
    return;
  }
  if (from_zero && low > 0) low = 0;
  if (high - low < 1e-12 * std::max(1.0, std::abs(high))) high = low + std::max(1.0, std::abs(low));
  low_ = low;
  high_ =
      from_zero ? high + 0.04 * (high - low) : high;  // keeps the top of the curve off the frame
}

double Axis::operator()(double value) const {
  if (!std::isfinite(value)) return kNaN;
  if (kind_ == Kind::logarithmic) {
    if (value < 0 || (value == 0 && !zero_line_)) return kNaN;
    if (value == 0) return 0;
    value = std::log10(value);
  }
  return (value - low_) / (high_ - low_);
}

std::vector<Tick> Axis::ticks(int count) const {
  std::vector<Tick> result;
  if (kind_ == Kind::logarithmic) {
    if (zero_line_) result.push_back({0, "0"});
    const double first = zero_line_ ? std::ceil(low_ + 0.5) : low_;
    const double step = std::max(1.0, std::ceil((high_ - first) / std::max(1, count - 1)));
    // From the top, so that a step of several decades never meets the line for zeros.
    for (double e = high_; e >= first - 1e-9; e -= step) {
      const double value = std::pow(10, e);
      result.push_back(
          {value, e >= -2 && e <= 3 ? fmt::format("{:g}", value) : fmt::format("1e{:g}", e)});
    }
    return result;
  }
  const double scale = percent_ ? 100 : 1;
  const double step = round_step((high_ - low_) * scale / count);
  for (double i = std::ceil(low_ * scale / step - 1e-9); i * step <= high_ * scale * (1 + 1e-9);
       ++i) {
    result.push_back({i * step / scale, tick(i * step) + (percent_ ? "%" : "")});
  }
  return result;
}

}  // namespace keel::lab::report
