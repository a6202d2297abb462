// Tables of trainings: the paper's figures and ours.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lab/report/charts.h"
#include "lab/report/picture.h"
#include "lab/report/table.h"
#include "lab/report/wording.h"
#include "lab/reproduce/page.h"
#include "lab/require.h"

namespace keel::lab::reproduce {
namespace {

using report::Chart;
using report::Curve;
using report::mean_text;
using report::Spread;
using Trials = std::vector<const Trial*>;

/// The trials as a group of runs.
report::Group group_of(const Trials& trials, const std::string& label = "") {
  report::Group group{label, {}};
  for (const Trial* trial : trials) group.runs.emplace_back().result = trial->result;
  return group;
}

std::vector<std::string> paper_columns(const PaperFigures& paper) {
  if (!paper.any()) return {"", "", ""};
  return {paper.least ? fmt::format("{:.2f}", *paper.least) : "-",
          paper.mean ? mean_text(*paper.mean, paper.deviation.value_or(kNotDone)) : "-",
          paper.success ? fmt::format("{:g} %", *paper.success) : ""};
}

bool any_has(const Results& results, std::vector<double> Trial::*errors) {
  return std::ranges::any_of(results.trials,
                             [&](const Trial& trial) { return !(trial.*errors).empty(); });
}

/// The mean of an error that not all trials have; empty if none has it.
std::string further_text(const Trials& trials, double Result::*which) {
  const Spread error = group_of(trials).test_error(which);
  return error.count ? mean_text(100 * error.mean, 100 * error.deviation) : "";
}

/// The largest difference between followed and recalibrated error after any evaluation but the first, in points.
std::string farthest_text(const Trials& trials) {
  double most = -1;
  for (const Trial* trial : trials)
    for (std::size_t i = 1;
         i < std::min(trial->followed_errors.size(), trial->recalibrated_errors.size()); ++i)
      most = std::fmax(most,
                       100 * std::abs(trial->followed_errors[i] - trial->recalibrated_errors[i]));
  return most < 0 ? "" : fmt::format("{:.2f}", most);
}

std::vector<std::string> our_columns(const Trials& trials) {
  if (trials.empty()) return {"not run", "", "", ""};
  const report::Group group = group_of(trials);
  const Spread error = group.test_error();
  const auto count = std::int64_t(trials.size());
  std::string steps;
  for (const Trial* trial : trials)
    if (trial->result.failure)
      steps += fmt::format("{}{}", steps.empty() ? "" : ", ", trial->result.failure->step);
  return {error.count ? fmt::format("{:.2f}", 100 * error.least) : "-",
          mean_text(100 * error.mean, 100 * error.deviation),
          fmt::format("{} of {}", count - group.failures(), count), steps};
}

/// Milliseconds and GPU memory of a training step. Empty texts if the trials did not record them.
std::vector<std::string> cost_columns(const Recipe& recipe, const Cell& cell,
                                      const Results& results) {
  const Trials trials = results.of(cell);
  const double batch = cell.train.value(
      "batch", results.options.value("batch", recipe.common.value("batch", 128.0)));
  std::vector<double> milliseconds, memory;
  for (const Trial* trial : trials) {
    if (trial->result.images_per_second > 0)
      milliseconds.push_back(1e3 * batch / trial->result.images_per_second);
    if (trial->result.peak_mib > 0) memory.push_back(trial->result.peak_mib);
  }
  const Spread time = report::spread(milliseconds), most = report::spread(memory);
  return {time.count ? fmt::format("{:.2f}", time.mean) : "",
          most.count ? fmt::format("{:.0f}", most.mean) : ""};
}

std::string table_text(const Recipe& recipe, const Results& results) {
  const auto any = [&](auto has) { return std::ranges::any_of(recipe.cells, has); };
  const bool columns = any([](const Cell& cell) { return !cell.column.empty(); });
  const bool recalibrated = any_has(results, &Trial::recalibrated_errors),
             followed = any_has(results, &Trial::followed_errors);
  const bool paper = any([](const Cell& cell) { return cell.paper.any(); });
  std::vector<std::string> heading{"method"};
  if (columns) heading.push_back("");
  if (paper) heading.insert(heading.end(), {"paper: min", "mean", "success"});
  heading.insert(heading.end(), {"our runs: min", "mean", "success", "failed at step"});
  if (recalibrated) heading.push_back("recalibrated: mean");
  if (followed) heading.insert(heading.end(), {"followed: mean", "farthest apart"});
  const bool costs = recipe.settings.contains("costs") && recipe.settings.at("costs") == true;
  if (costs) heading.insert(heading.end(), {"ms a step", "GPU memory, MiB"});
  report::Table table(heading, columns ? 2 : 1);
  std::string row;
  for (const Cell& cell : recipe.cells) {
    std::vector<std::string> line{cell.row == row ? "" : cell.row};
    row = cell.row;
    if (columns) line.push_back(cell.column);
    if (paper)
      for (const auto& text : paper_columns(cell.paper)) line.push_back(text);
    for (const auto& text : our_columns(results.of(cell))) line.push_back(text);
    if (recalibrated)
      line.push_back(further_text(results.of(cell), &Result::recalibrated_test_error));
    if (followed) {
      line.push_back(further_text(results.of(cell), &Result::followed_test_error));
      line.push_back(farthest_text(results.of(cell)));
    }
    if (costs)
      for (const auto& text : cost_columns(recipe, cell, results)) line.push_back(text);
    table.add(line);
  }
  return table.markdown();
}

/// " Recalibration took 3 % of the trials' time."; empty if no trial recorded it.
std::string recalibration_cost(const Results& results) {
  double part = 0, whole = 0;
  for (const Trial& trial : results.trials)
    if (trial.result.recalibration_seconds > 0)
      part += trial.result.recalibration_seconds, whole += trial.result.seconds;
  return whole > 0
             ? fmt::format(" Recalibration took {:.1f} % of the trials' time.", 100 * part / whole)
             : "";
}

std::string recalibration_text(const Results& results) {
  if (!any_has(results, &Trial::recalibrated_errors)) return "";
  const auto batches = results.options.value("recalibrate", TrainOptions().recalibrate);
  std::string text = fmt::format(
      "Recalibrated: evaluated with running statistics recomputed from {} training batches at the "
      "same weights. The other columns use those that training left, as in the paper.{}",
      batches, recalibration_cost(results));
  if (any_has(results, &Trial::followed_errors))
    text +=
        " Followed: with statistics made from the weights and from what training saw of the "
        "convolutions' inputs; and how far apart these two were after any evaluation but the "
        "first, in points.";
  return text + "\n\n";
}

/// "; gradient in the steps before 0.8, at most 3e+05, last 12"; empty if the trial did not record it.
std::string gradients_text(const Failure& failure) {
  std::vector<double> before;  // the failing step's own comes last
  for (std::size_t i = 0; i + 1 < failure.gradients.size(); ++i)
    if (std::isfinite(failure.gradients[i])) before.push_back(failure.gradients[i]);
  if (before.empty()) return "";
  return fmt::format("; gradient of the {} before: {:.2g} at first, {:.2g} at most, {:.2g} at last",
                     counted(std::int64_t(before.size()), "step"), before.front(),
                     *std::ranges::max_element(before), before.back());
}

/// One sentence per failed trial.
std::string failures_text(const Recipe& recipe, const Results& results) {
  std::string text;
  for (const Cell& cell : recipe.cells) {
    if (!cell.same_as.empty()) continue;
    for (const Trial* trial : results.of(cell))
      if (trial->result.failure)
        text += fmt::format("- {}, seed {}: {}{}\n", cell.label(), trial->seed,
                            report::in_markdown(trial->result.failure->what),
                            gradients_text(*trial->result.failure));
  }
  return text.empty() ? text : "## Failures\n\n" + text + "\n";
}

std::string not_run_text(const Recipe& recipe, const Results& results) {
  std::string text;
  for (const Cell& cell : recipe.cells)
    if (results.of(cell).empty())
      text += fmt::format("{}{}", text.empty() ? "" : "; ", cell.label());
  return text.empty() || results.empty() ? "" : "Not run: " + text + ".\n\n";
}

/// Errors over x, one curve per method. A method without an x is a horizontal line.
Chart chart_of(const std::vector<const Cell*>& cells, const Results& results) {
  // Errors are close together. On an axis from 0 they would look like one line.
  Chart chart{.description = "test error",
              .x_label = "",
              .percent = true,
              .from_zero = false,
              .points = true};
  double low = INFINITY, high = -INFINITY;
  std::map<std::string, std::size_t> place;
  for (const Cell* cell : cells)
    if (cell->x) low = std::min(low, *cell->x), high = std::max(high, *cell->x);
  for (const Cell* cell : cells) {
    const Trials trials = results.of(*cell);
    const Spread error = group_of(trials).test_error();
    if (trials.empty()) continue;
    const auto [found, fresh] = place.try_emplace(cell->row, chart.curves.size());
    if (fresh) chart.curves.push_back({.label = cell->row});
    Curve& curve = chart.curves[found->second];
    const double side = std::isfinite(error.deviation) ? error.deviation : 0;
    for (const double x : cell->x ? std::vector{*cell->x} : std::vector{low, high}) {
      curve.x.push_back(x);
      curve.y.push_back(error.mean);
      curve.low.push_back(error.mean - side);
      curve.high.push_back(error.mean + side);
    }
  }
  return chart;
}

/// One chart per panel over x, if the cells have an x. Otherwise one with a dot for each trial.
std::string errors_picture(const Recipe& recipe, const Results& results) {
  std::vector<std::string> panels;
  for (const Cell& cell : recipe.cells)
    if (std::ranges::find(panels, cell.panel) == panels.end()) panels.push_back(cell.panel);
  report::Charts charts;
  std::vector<report::Group> groups;
  for (const std::string& panel : panels) {
    std::vector<const Cell*> cells;
    bool over_x = false;
    for (const Cell& cell : recipe.cells) {
      if (cell.panel != panel) continue;
      cells.push_back(&cell);
      over_x |= cell.x.has_value();
    }
    if (over_x) {
      Chart chart = chart_of(cells, results);
      chart.x_label = panel.empty() ? recipe.settings.value("x_label", "") : panel;
      if (!chart.curves.empty())
        charts.emplace_back(panel.empty() ? "Test error" : "Test error: " + panel, chart);
    } else {
      for (const Cell* cell : cells)
        if (const Trials trials = results.of(*cell); !trials.empty())
          groups.push_back(group_of(trials, cell->label()));
    }
  }
  if (charts.empty() && !groups.empty()) {
    Chart chart = report::final_errors(groups);
    chart.values = false;
    if (!chart.curves.empty()) charts.emplace_back("Test error of each trial", chart);
  }
  return charts.empty() ? "" : report::picture(charts);
}

constexpr std::size_t kManyEvaluations = 30;

/// The epochs (from 1) of a trial's recorded test errors: evenly spaced up to the last.
std::vector<double> evaluated_epochs(const Trial& trial) {
  const auto count = std::int64_t(trial.test_errors.size());
  const std::int64_t spacing = (trial.result.epochs + count - 1) / count;
  std::vector<double> epochs;
  for (std::int64_t i = 0; i < count; ++i)
    epochs.push_back(double(trial.result.epochs - (count - 1 - i) * spacing));
  return epochs;
}

/// A cell's errors over the epochs: the mean of its long trials, with a band from the smallest to the largest. Empty
/// if it has no long trial that ran to its end.
Curve course_of(const Cell& cell, const Results& results, std::vector<double> Trial::*errors) {
  Trials trials = results.of(cell);
  std::erase_if(trials, [&](const Trial* trial) {
    return trial->result.failure || (trial->*errors).size() < kManyEvaluations ||
           trial->result.epochs != results.options.value("epochs", trial->result.epochs);
  });
  Curve curve{.label = cell.label()};
  if (trials.empty()) return curve;
  curve.x = evaluated_epochs(*trials[0]);
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    std::vector<double> there;
    for (const Trial* trial : trials)
      if (i < (trial->*errors).size()) there.push_back((trial->*errors)[i]);
    const Spread spread = report::spread(there);
    curve.y.push_back(spread.mean);
    if (trials.size() == 1) continue;
    curve.low.push_back(spread.least);
    curve.high.push_back(spread.most);
  }
  return curve;
}

/// For long runs, one line per cell: the test error over the whole run, and over its last third. Then the same with
/// recomputed statistics.
std::string course_picture(const Recipe& recipe, const Results& results) {
  report::Charts charts;
  for (const auto& [name, errors] : {std::pair("Test error", &Trial::test_errors),
                                     {"Test error, recalibrated", &Trial::recalibrated_errors},
                                     {"Test error, followed", &Trial::followed_errors}}) {
    Chart whole{.description = "test error over the run", .x_label = "epoch", .percent = true};
    Chart last = whole;
    last.from_zero = false;
    for (const Cell& cell : recipe.cells) {
      Curve curve = course_of(cell, results, errors);
      if (curve.x.empty()) continue;
      whole.curves.push_back(curve);
      const auto early = std::ptrdiff_t(2 * curve.x.size() / 3);
      for (auto* list : {&curve.x, &curve.y, &curve.low, &curve.high})
        if (!list->empty()) list->erase(list->begin(), list->begin() + early);
      last.curves.push_back(curve);
    }
    if (whole.curves.empty()) continue;
    charts.emplace_back(name, whole);
    charts.emplace_back(std::string(name) + ", the last third", last);
  }
  return charts.empty() ? "" : report::picture(charts);
}

/// The largest gradient over the steps: of each interval that was recorded, and of each step before a failure.
Curve gradients_of(const Trial& trial) {
  Curve curve{.label = "", .x = trial.at, .y = trial.gradient};
  if (!trial.result.failure) return curve;
  const Failure& failure = *trial.result.failure;
  const double first = double(failure.step) - double(failure.gradients.size());
  for (std::size_t i = 0; i < failure.gradients.size(); ++i) {
    const double step = first + double(i) + 1;
    if (!std::isfinite(failure.gradients[i]) || (!curve.x.empty() && step <= curve.x.back()))
      continue;
    curve.x.push_back(step);
    curve.y.push_back(failure.gradients[i]);
  }
  curve.failed_at = double(failure.step);
  return curve;
}

/// A panel for each column of the table, and a line for each row: that of its trial whose gradient was largest.
std::string gradients_picture(const Recipe& recipe, const Results& results) {
  report::Charts charts;
  for (const Cell& cell : recipe.cells) {
    if (cell.column.empty()) continue;
    Curve largest;
    double most = -1;
    for (const Trial* trial : results.of(cell)) {
      Curve curve = gradients_of(*trial);
      if (curve.y.empty()) continue;
      // A failure counts for more than any finite gradient.
      const double size = trial->result.failure ? INFINITY : *std::ranges::max_element(curve.y);
      if (size > most) most = size, largest = std::move(curve);
    }
    if (most < 0) continue;
    largest.label = cell.row;
    report::chart_of(
        charts, cell.column,
        {.description = cell.column, .x_label = "step", .y_axis = report::Axis::Kind::logarithmic})
        .curves.push_back(largest);
  }
  return charts.empty() ? "" : report::picture(charts);
}

}  // namespace

Page training_body(const Recipe& recipe, const Results& results) {
  Page page;
  page.markdown =
      "Test error in percent; mean and standard deviation over the trials that succeeded, and how "
      "many did. A trial fails at the first step whose loss or gradient is not finite.\n\n";
  page.markdown += recalibration_text(results);
  page.markdown += table_text(recipe, results) + "\n" + not_run_text(recipe, results);
  if (const auto svg = errors_picture(recipe, results); !svg.empty()) {
    page.pictures["errors.svg"] = svg;
    page.markdown += "![Test errors](errors.svg)\n\n";
  }
  if (const auto svg = course_picture(recipe, results); !svg.empty()) {
    page.pictures["course.svg"] = svg;
    page.markdown += "![Test error over the epochs](course.svg)\n\n";
  }
  if (recipe.settings.value("gradients", false))
    if (const auto svg = gradients_picture(recipe, results); !svg.empty()) {
      page.pictures["gradient.svg"] = svg;
      page.markdown +=
          "The largest gradient over the steps, of the trial of each row whose gradient was "
          "largest; a cross marks a failure.\n\n![Largest gradient](gradient.svg)\n\n";
    }
  page.markdown += failures_text(recipe, results);
  return page;
}

Page curves_body(const Recipe& recipe, const Results& results) {
  report::Charts losses, gradients;
  for (const Cell& cell : recipe.cells) {
    const auto trials = results.of(cell);
    if (trials.empty()) continue;
    for (auto* charts : {&losses, &gradients}) {
      if (charts->empty() || charts->back().first != cell.panel)
        charts->push_back({cell.panel,
                           {.description = cell.panel,
                            .x_label = "step",
                            .y_axis = charts == &losses ? report::Axis::Kind::linear
                                                        : report::Axis::Kind::logarithmic}});
      for (const Trial* trial : trials) {
        Curve curve{.label = cell.row,
                    .x = trial->at,
                    .y = charts == &losses ? trial->loss : trial->gradient};
        if (trial->result.failure) curve.failed_at = double(trial->result.failure->step);
        charts->back().second.curves.push_back(curve);
      }
    }
  }
  Page page;
  if (!losses.empty()) {
    page.pictures["loss.svg"] = report::picture(losses);
    page.pictures["gradient.svg"] = report::picture(gradients);
    page.markdown +=
        "Training loss, a line for each trial; a cross marks where a trial failed.\n\n"
        "![Training loss](loss.svg)\n\n"
        "Norm of the gradient that leaves the layer (of the first convolution's weights), the "
        "largest of each interval: where the layer's gradient is unsteady, this shows it first.\n\n"
        "![Gradient norm](gradient.svg)\n\n";
    page.markdown +=
        fmt::format("The trials are those of [{0}](../{0}/README.md).\n\n", recipe.results_of);
  }
  return page;
}

}  // namespace keel::lab::reproduce
