#include "lab/report/svg.h"

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

constexpr double kWidth = 340, kHeight = 220;
constexpr double kTop = 10, kRight = 330, kBottom = 182;

std::string stroke(int colour) {
  static constexpr const char* dashes[] = {"", " stroke-dasharray='6 3'",
                                           " stroke-dasharray='2 3'"};
  return fmt::format("stroke='var(--c{})'{}", colour % kColours, dashes[colour / kColours % 3]);
}

struct Frame {
  Axis x, y;
  double left;

  // Inset, so that a cross at the first step does not touch the axis labels.
  double across(double value) const { return left + 6 + x(value) * (kRight - left - 6); }
  double up(double value) const { return kBottom - y(value) * (kBottom - kTop); }
};

Frame frame(const Chart& chart) {
  std::vector<double> xs, ys;
  for (const Curve& curve : chart.curves) {
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      xs.push_back(curve.x[i]);
      ys.push_back(curve.y[i]);
      if (!curve.low.empty()) ys.insert(ys.end(), {curve.low[i], curve.high[i]});
    }
    if (curve.failed_at) xs.push_back(*curve.failed_at);
  }
  const Axis x(Axis::Kind::linear, xs, false);
  const Axis y(chart.y_axis, ys, chart.from_zero, chart.percent);
  std::size_t longest = 1;
  for (const Tick& tick : y.ticks(5)) longest = std::max(longest, tick.label.size());
  return {x, y, 8 + kLetter * double(longest)};
}

std::string grid(const Chart& chart, const Frame& frame) {
  std::string out;
  for (const Tick& tick : frame.y.ticks(5)) {
    const double y = frame.up(tick.value);
    out += fmt::format("<line class='grid' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>",
                       frame.left, kRight, y, y);
    out += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>", frame.left - 5,
                       y + 4, tick.label);
  }
  for (const Tick& tick : frame.x.ticks(6)) {
    const double x = frame.across(tick.value);
    out += fmt::format("<line class='axis' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>", x, x,
                       kBottom, kBottom + 4);
    out += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>", x,
                       kBottom + 16, tick.label);
  }
  out += fmt::format("<line class='axis' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>",
                     frame.left, kRight, kBottom, kBottom);
  out += fmt::format("<text class='label' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>",
                     (frame.left + kRight) / 2, kBottom + 33, escaped(chart.x_label));
  return out;
}

/// Calls draw for each run of consecutive points that the chart can show.
template <typename Draw>
void stretches(const Curve& curve, const Frame& frame, const Draw& draw) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= curve.x.size(); ++i) {
    if (i < curve.x.size() && std::isfinite(frame.up(curve.y[i]))) continue;
    if (i > begin) draw(begin, i);
    begin = i + 1;
  }
}

std::string band(const Curve& curve, const Frame& frame) {
  if (curve.low.empty()) return {};
  std::string out;
  stretches(curve, frame, [&](std::size_t begin, std::size_t end) {
    // If the axis cannot show an edge (mean minus deviation below zero), the edge stays at the line.
    const auto edge = [&](const std::vector<double>& side, std::size_t i) {
      const double y = frame.up(side[i]);
      return std::isfinite(y) ? y : frame.up(curve.y[i]);
    };
    std::string points;
    for (std::size_t i = begin; i < end; ++i)
      points += fmt::format("{:.1f},{:.1f} ", frame.across(curve.x[i]), edge(curve.high, i));
    for (std::size_t i = end; i-- > begin;)
      points += fmt::format("{:.1f},{:.1f} ", frame.across(curve.x[i]), edge(curve.low, i));
    points.pop_back();
    out += fmt::format("<polygon class='band' fill='var(--c{})' points='{}'/>",
                       curve.colour % kColours, points);
  });
  return out;
}

/// What the pointer shows at one point of a curve.
std::string value_of(const Curve& curve, std::size_t i, const Chart& chart) {
  const double y = curve.y[i];
  const auto value = chart.percent ? fmt::format("{:.4g} %", 100 * y) : fmt::format("{:.4g}", y);
  return fmt::format("{}, {} {:g}: {}", curve.label, chart.x_label, curve.x[i], value);
}

std::string line(const Curve& curve, const Frame& frame, const Chart& chart) {
  std::string out, places;
  stretches(curve, frame, [&](std::size_t begin, std::size_t end) {
    std::string points;
    for (std::size_t i = begin; i < end; ++i) {
      const double x = frame.across(curve.x[i]), y = frame.up(curve.y[i]);
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      if (chart.points || end - begin == 1) {
        out += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='{}' fill='var(--c{})'/>", x, y,
                           end - begin > 1 ? "2" : "3.5", curve.colour % kColours);
      }
      if (chart.values)
        places += fmt::format(
            "<circle class='place' cx='{:.1f}' cy='{:.1f}' r='5'><title>{}</title></circle>", x, y,
            escaped(value_of(curve, i, chart)));
    }
    points.pop_back();
    out += fmt::format("<polyline class='line' {} points='{}'/>", stroke(curve.colour), points);
  });
  return fmt::format("<g><title>{}</title>{}{}</g>", escaped(curve.label), out, places);
}

/// Crosses are at the top of the chart, each at its own height, so that runs that failed at the same step stay
/// distinguishable.
std::string cross(const Curve& curve, const Frame& frame, int order) {
  const double x = frame.across(*curve.failed_at), y = kTop + 7 + 13 * order, r = 4.5;
  return fmt::format(
      "<path class='cross' stroke='var(--c{})' d='M{:.1f} {:.1f}L{:.1f} {:.1f}M{:.1f} "
      "{:.1f}L{:.1f} {:.1f}'><title>{} failed at step {:g}</title></path>",
      curve.colour % kColours, x - r, y - r, x + r, y + r, x - r, y + r, x + r, y - r,
      escaped(curve.label), *curve.failed_at);
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
    whole_ = whole_ && value == std::floor(value);
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
  const double step =
      std::max(round_step((high_ - low_) * scale / count), whole_ && !percent_ ? 1.0 : 0.0);
  for (double i = std::ceil(low_ * scale / step - 1e-9); i * step <= high_ * scale * (1 + 1e-9);
       ++i) {
    result.push_back({i * step / scale, tick(i * step) + (percent_ ? "%" : "")});
  }
  return result;
}

std::string svg(const Chart& chart) {
  const Frame axes = frame(chart);
  std::string out = fmt::format("<svg viewBox='0 0 {:g} {:g}' role='img' aria-label='{}'>", kWidth,
                                kHeight, escaped(chart.description));
  out += grid(chart, axes);
  for (const Curve& curve : chart.curves) out += band(curve, axes);
  for (const Curve& curve : chart.curves) out += line(curve, axes, chart);
  int crosses = 0;
  for (const Curve& curve : chart.curves)
    if (curve.failed_at) out += cross(curve, axes, crosses++);
  return out + "</svg>";
}

std::string swatch_svg(int colour) {
  return fmt::format(
      "<svg class='swatch' viewBox='0 0 26 10' aria-hidden='true'><line x1='1' x2='25' y1='5' "
      "y2='5' {}/></svg>",
      stroke(colour));
}

}  // namespace keel::lab::report
