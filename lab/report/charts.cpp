#include "lab/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/report/wording.h"

namespace keel::lab::report {
namespace {

constexpr std::size_t kPoints = 160;  // of a curve over steps, at most

bool has_numbers(const Curve& curve) {
  return std::ranges::any_of(curve.y, [](double y) { return std::isfinite(y); });
}

/// Neighbours averaged to at most kPoints, each at the last of its neighbours.
Curve thinned(const Curve& curve) {
  const std::size_t block = std::max<std::size_t>(1, (curve.x.size() + kPoints - 1) / kPoints);
  Curve few{.label = curve.label};
  for (std::size_t i = 0; i < curve.x.size(); i += block) {
    const std::size_t end = std::min(curve.x.size(), i + block);
    few.x.push_back(curve.x[end - 1]);
    few.y.push_back(spread({curve.y.begin() + long(i), curve.y.begin() + long(end)}).mean);
  }
  return few;
}

/// A line for each run; those of a group have one colour.
template <typename Draw>
Chart line_for_each_run(Chart chart, const std::vector<Group>& groups, const Draw& draw) {
  bool any = false;
  for (const Group& group : groups)
    for (const Run& run : group.runs) {
      Curve curve{.label = group.label};
      draw(run, curve);
      any |= has_numbers(curve);
      if (has_numbers(curve) || curve.failed_at) chart.curves.push_back(curve);
    }
  if (!any) chart.curves.clear();
  return chart;
}

Chart over_epochs(const std::vector<Group>& groups, const char* title, double EpochRecord::*value) {
  const Chart chart{.description = title, .x_label = "epoch", .percent = true, .values = true};
  return line_for_each_run(chart, groups, [&](const Run& run, Curve& curve) {
    for (const EpochRecord& record : run.epochs) {
      if (!std::isfinite(record.*value)) continue;  // not every epoch ends with an evaluation
      curve.x.push_back(double(record.epoch) + 1);
      curve.y.push_back(record.*value);
    }
  });
}

Chart over_steps(const std::vector<Group>& groups, const char* title, double StepRecord::*value,
                 Axis::Kind axis, bool crosses) {
  const Chart chart{.description = title, .x_label = "step", .y_axis = axis, .values = true};
  return line_for_each_run(chart, groups, [&](const Run& run, Curve& curve) {
    for (const StepRecord& record : run.steps) {
      curve.x.push_back(double(record.step));
      curve.y.push_back(record.*value);
    }
    curve = thinned(curve);
    if (crosses && run.result.failure) curve.failed_at = double(run.result.failure->step);
  });
}

}  // namespace

Chart& chart_of(Charts& charts, const std::string& title, const Chart& added) {
  const auto found = std::ranges::find(charts, title, [](const auto& one) { return one.first; });
  return found != charts.end() ? found->second : charts.emplace_back(title, added).second;
}

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
      Chart& chart = chart_of(charts, layer.name,
                              {.description = "Eigenvalues of the covariance of " + layer.name,
                               .x_label = "eigenvalue, from the largest",
                               .y_axis = Axis::Kind::logarithmic,
                               .points = true,
                               .values = true});
      Curve points{.label = group.label};
      for (std::size_t k = 0; k < layer.groups.front().values.size(); ++k) {
        std::vector<double> values;
        for (const GroupSpectrum& one : layer.groups)
          if (k < one.values.size()) values.push_back(one.values[k]);
        const Spread s = spread(values);
        points.x.push_back(double(k + 1));
        points.y.push_back(s.mean);
        if (layer.groups.size() > 1) points.low.push_back(s.least), points.high.push_back(s.most);
      }
      if (has_numbers(points)) chart.curves.push_back(points);
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
