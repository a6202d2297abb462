#include "lab/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/report/wording.h"

namespace keel::lab::report {
namespace {

bool has_numbers(const Trace& trace) {
  return std::ranges::any_of(trace.y, [](double y) { return std::isfinite(y); });
}

Curve curve(const Group& group, const Trace& trace) {
  return {group.label, 0, trace.x, trace.y, trace.low, trace.high};
}

Chart over_epochs(const std::vector<Group>& groups, const char* title, double EpochRecord::*value) {
  Chart chart{.description = title, .x_label = "epoch", .percent = true, .values = true};
  for (const Group& group : groups)
    if (const Trace points = trace(group, value); has_numbers(points))
      chart.curves.push_back(curve(group, points));
  return chart;
}

Chart over_steps(const std::vector<Group>& groups, const char* title, double StepRecord::*value,
                 Axis::Kind axis, bool crosses) {
  Chart chart{.description = title, .x_label = "step", .y_axis = axis, .values = true};
  const auto average = axis == Axis::Kind::logarithmic ? Average::geometric : Average::arithmetic;
  bool any = false;
  for (const Group& group : groups) {
    const Trace points = trace(group, value, average);
    Curve drawn = curve(group, points);
    for (const Run& run : group.runs)
      if (crosses && run.result.failure) drawn.failed_at = double(run.result.failure->step);
    any |= has_numbers(points);
    if (has_numbers(points) || drawn.failed_at) chart.curves.push_back(drawn);
  }
  if (!any) chart.curves.clear();
  return chart;
}

}  // namespace

Charts curve_charts(const std::vector<Group>& groups) {
  using enum Axis::Kind;
  Charts charts;
  const auto add = [&](const char* title, const Chart& chart) {
    if (!chart.curves.empty()) charts.emplace_back(title, chart);
  };
  const auto epochs = [&](const char* title, double EpochRecord::*value) {
    add(title, over_epochs(groups, title, value));
  };
  const auto steps = [&](const char* title, double StepRecord::*value, Axis::Kind axis,
                         bool crosses) {
    add(title, over_steps(groups, title, value, axis, crosses));
  };
  epochs("Test error", &EpochRecord::test_error);
  epochs("Training error", &EpochRecord::train_error);
  steps("Training loss", &StepRecord::loss, linear, true);
  steps("Gradient norm behind the layer", &StepRecord::gradient_norm_layer, logarithmic, true);
  steps("Smallest gap between eigenvalues", &StepRecord::smallest_gap, logarithmic, true);
  steps("Directions kept", &StepRecord::rank, linear, false);
  steps("Learning rate", &StepRecord::learning_rate, linear, false);
  return charts;
}

Charts spectrum_charts(const std::vector<Group>& groups) {
  Charts charts;
  for (const Group& group : groups)
    for (const LayerSpectrum& layer : group.runs.front().spectra) {
      auto chart = std::ranges::find(charts, layer.name, [](const auto& one) { return one.first; });
      if (chart == charts.end())
        chart =
            charts.insert(chart, {layer.name,
                                  {.description = "Eigenvalues of the covariance of " + layer.name,
                                   .x_label = "eigenvalue, from the largest",
                                   .y_axis = Axis::Kind::logarithmic,
                                   .points = true,
                                   .values = true}});
      Trace points;
      for (std::size_t k = 0; k < layer.groups.front().values.size(); ++k) {
        std::vector<double> values;
        for (const GroupSpectrum& one : layer.groups)
          if (k < one.values.size()) values.push_back(one.values[k]);
        const Spread s = spread(values);
        points.x.push_back(double(k + 1));
        points.y.push_back(s.mean);
        if (layer.groups.size() > 1) points.low.push_back(s.least), points.high.push_back(s.most);
      }
      if (has_numbers(points)) chart->second.curves.push_back(curve(group, points));
    }
  std::erase_if(charts, [](const auto& one) { return one.second.curves.empty(); });
  return charts;
}

Panel final_error_panel(const std::vector<Group>& groups) {
  std::vector<double> all;
  for (const Group& group : groups) {
    const Spread error = group.test_error();
    all.insert(all.end(), {error.least, error.most});
    if (error.count > 1)
      all.insert(all.end(), {error.mean - error.deviation, error.mean + error.deviation});
  }
  const Axis axis(Axis::Kind::linear, all, true, true);
  constexpr double left = 12, right = 328, row = 34, top = 4;
  const auto across = [&](double value) { return left + axis(value) * (right - left); };
  const double bottom = top + row * double(groups.size()) + 4;
  std::string out;
  for (const Tick& tick : axis.ticks(5)) {
    out += fmt::format("<line class='grid' x1='{0:.1f}' x2='{0:.1f}' y1='{1:g}' y2='{2:.1f}'/>",
                       across(tick.value), top, bottom);
    out += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>",
                       across(tick.value), bottom + 15, tick.label);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    const Spread error = group.test_error();
    const double y = top + row * double(i) + 25;
    const auto colour = fmt::format("var(--c{})", i % kColours);
    std::string note;
    if (group.failures() > 0)
      note = fmt::format(" · {} of {} failed", group.failures(), group.runs.size());
    // SVG text does not wrap. The tooltip shows what is cut off.
    const auto room = std::size_t((right - left) / kLetter) - columns(note);
    const auto label = shortened(group.label, room);
    out += fmt::format("<text class='name' x='{:g}' y='{:.1f}'><title>{}</title>{}{}</text>", left,
                       y - 10, escaped(group.label), escaped(label), note);
    if (error.count > 1) {
      out += fmt::format(
          "<line x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}' stroke='{}' stroke-width='2.5'/>",
          across(std::max(0.0, error.mean - error.deviation)), across(error.mean + error.deviation),
          y, y, colour);
      out += fmt::format(
          "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='{3}' "
          "stroke-width='2.5'/>",
          across(error.mean), y - 6, y + 6, colour);
    }
    for (const Run& run : group.runs) {
      if (run.result.failure || !std::isfinite(run.result.test_error)) continue;
      out += fmt::format(
          "<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='{}' fill-opacity='{}'><title>{}: "
          "{}</title></circle>",
          across(run.result.test_error), y, colour, error.count > 1 ? "0.55" : "1",
          escaped(group.label), percent(run.result.test_error, 2));
    }
  }
  const bool any = std::ranges::any_of(all, [](double v) { return std::isfinite(v); });
  return {"Test error at the end", any ? fmt::format("<svg viewBox='0 0 340 {:.0f}' role='img' "
                                                     "aria-label='Test error at the end'>{}</svg>",
                                                     bottom + 22, out)
                                       : ""};
}

}  // namespace keel::lab::report
