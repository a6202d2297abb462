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

Curve curve(const Group& group, int colour, const Trace& trace) {
  return {group.label, colour, trace.x, trace.y, trace.low, trace.high};
}

void mark_failure(Curve& curve, const Group& group) {
  for (const Run& run : group.runs)
    if (run.result.failure) curve.failed_at = double(run.result.failure->step);
}

Figure over_epochs(const std::vector<Group>& groups, const char* title, const char* caption,
                   double EpochRecord::*value, bool percent) {
  Chart chart{.description = title, .x_label = "epoch", .percent = percent};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Trace points = trace(groups[i], value);
    if (has_numbers(points)) chart.curves.push_back(curve(groups[i], int(i), points));
  }
  return {title, caption, chart.curves.empty() ? "" : svg(chart)};
}

struct StepFigure {
  const char *title, *caption;
  double StepRecord::*value;
  Axis::Kind axis;
  bool crosses = false;
};

Figure over_steps(const std::vector<Group>& groups, const StepFigure& wanted) {
  Chart chart{.description = wanted.title, .x_label = "step", .y_axis = wanted.axis};
  const auto average =
      wanted.axis == Axis::Kind::logarithmic ? Average::geometric : Average::arithmetic;
  bool any = false;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Trace points = trace(groups[i], wanted.value, average);
    Curve drawn = curve(groups[i], int(i), points);
    if (wanted.crosses) mark_failure(drawn, groups[i]);
    any |= has_numbers(points);
    if (has_numbers(points) || drawn.failed_at) chart.curves.push_back(drawn);
  }
  return {wanted.title, wanted.caption, any ? svg(chart) : ""};
}

const std::vector<GroupSpectrum>* spectrum_of(const Run& run, const std::string& layer) {
  for (const LayerSpectrum& spectrum : run.spectra)
    if (spectrum.name == layer) return &spectrum.groups;
  return nullptr;
}

}  // namespace

std::vector<Figure> curve_figures(const std::vector<Group>& groups) {
  const bool seeds =
      std::ranges::any_of(groups, [](const Group& group) { return group.runs.size() > 1; });
  const char* spread = seeds ? "Mean over the seeds; band: one standard deviation." : "";
  const auto linear = Axis::Kind::linear, logarithmic = Axis::Kind::logarithmic;
  std::vector<Figure> figures = {
      over_epochs(groups, "Test error", spread, &EpochRecord::test_error, true),
      over_epochs(groups, "Training error", spread, &EpochRecord::train_error, true),
      over_steps(groups, {"Training loss",
                          "A cross marks where a run ended with a value that is not finite.",
                          &StepRecord::loss, linear, true}),
      over_steps(groups, {"Gradient norm behind the layer",
                          "Norm of what passed the layer, the largest of each interval.",
                          &StepRecord::gradient_norm_layer, logarithmic, true}),
      over_steps(groups, {"Smallest gap between eigenvalues",
                          "Of the layer's covariance; 0 where two are equal to the last bit.",
                          &StepRecord::smallest_gap, logarithmic, true}),
      over_steps(groups, {"Directions kept", "The layer's rank; the fewest of any group.",
                          &StepRecord::rank, linear}),
      over_steps(groups, {"Learning rate", "", &StepRecord::learning_rate, linear}),
  };
  std::erase_if(figures, [](const Figure& figure) { return figure.svg.empty(); });
  return figures;
}

Figure final_error_figure(const std::vector<Group>& groups) {
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
    const auto label =
        columns(group.label) <= room ? group.label : cut(group.label, room - 1) + "…";
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
          "<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='{}' fill-opacity='{}'><title>{}: {}</title>"
          "</circle>",
          across(run.result.test_error), y, colour, error.count > 1 ? "0.55" : "1",
          escaped(group.label), percent(run.result.test_error, 2));
    }
  }
  const bool any = std::ranges::any_of(all, [](double v) { return std::isfinite(v); });
  return {
      "Test error at the end",
      "A dot for each seed; the bar is mean ± one standard deviation where there are several.",
      any ? fmt::format("<svg viewBox='0 0 340 {:.0f}' role='img' aria-label='Test error at the "
                        "end'>{}</svg>",
                        bottom + 22, out)
          : ""};
}

std::vector<std::string> layers_with_spectra(const std::vector<Group>& groups) {
  std::vector<std::string> names;
  for (const Group& group : groups)
    for (const LayerSpectrum& spectrum : group.runs.front().spectra)
      if (std::ranges::find(names, spectrum.name) == names.end()) names.push_back(spectrum.name);
  return names;
}

Figure spectrum_figure(const std::vector<Group>& groups, const std::string& layer) {
  Chart chart{.description = "Eigenvalues of the covariance of " + layer,
              .x_label = "eigenvalue, from the largest",
              .y_axis = Axis::Kind::logarithmic,
              .points = true};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto* spectrum = spectrum_of(groups[i].runs.front(), layer);
    if (spectrum == nullptr) continue;
    Trace points;
    for (std::size_t k = 0; k < spectrum->front().values.size(); ++k) {
      std::vector<double> values;
      for (const GroupSpectrum& group : *spectrum)
        if (k < group.values.size()) values.push_back(group.values[k]);
      const Spread s = spread(values);
      points.x.push_back(double(k + 1));
      points.y.push_back(s.mean);
      if (spectrum->size() > 1) points.low.push_back(s.least), points.high.push_back(s.most);
    }
    if (has_numbers(points)) chart.curves.push_back(curve(groups[i], int(i), points));
  }
  return {"Eigenvalues: " + layer,
          "Of the layer's covariance at the end; a flat end is a repeated eigenvalue.",
          chart.curves.empty() ? "" : svg(chart)};
}

std::vector<std::vector<double>> covariance_of(const Run& run, const std::string& layer) {
  const auto* spectrum = spectrum_of(run, layer);
  if (spectrum == nullptr) return {};
  std::size_t channels = 0;
  for (const GroupSpectrum& group : *spectrum) channels += group.covariance.size();
  std::vector<std::vector<double>> whole(channels, std::vector<double>(channels, 0));
  std::size_t first = 0;
  for (const GroupSpectrum& group : *spectrum) {
    const std::size_t d = group.covariance.size();
    for (std::size_t i = 0; i < d; ++i)
      for (std::size_t j = 0; j < d; ++j) whole[first + i][first + j] = group.covariance[i][j];
    first += d;
  }
  return whole;
}

}  // namespace keel::lab::report
