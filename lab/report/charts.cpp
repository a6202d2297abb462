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
  add("Test error at the end", final_errors(groups));
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

Chart final_errors(const std::vector<Group>& groups) {
  Chart chart{.description = "Test error at the end",
              .x_label = "entry",
              .percent = true,
              .points = true,
              .values = true};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Curve curve{groups[i].label, int(i)};
    for (const Run& run : groups[i].runs)
      if (!run.result.failure && std::isfinite(run.result.test_error))
        curve.y.push_back(run.result.test_error);
    std::ranges::sort(curve.y);
    curve.x.assign(curve.y.size(), double(i + 1));
    if (!curve.y.empty()) chart.curves.push_back(curve);
  }
  return chart;
}

}  // namespace keel::lab::report
