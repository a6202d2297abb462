#include "lab/report/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/report/wording.h"

namespace keel::lab::report {
namespace {

std::string failed_at(const Group& group) {
  const int failures = group.failures();
  if (failures == 0) return "no";
  std::int64_t first = 0;
  for (const Run& run : group.runs)
    if (run.failure && (first == 0 || run.failure->step < first)) first = run.failure->step;
  if (group.runs.size() == 1) return fmt::format("at step {}", first);
  return fmt::format("{} of {}, first at step {}", failures, group.runs.size(), first);
}

std::string error_text(const Spread& error) {
  if (error.count == 0) return "-";
  return error.count == 1
             ? percent(error.mean, 2)
             : fmt::format("{:.2f} ± {:.2f} %", 100 * error.mean, 100 * error.deviation);
}

std::string recalibrated_text(const Group& group) {
  const Spread error = group.recalibrated_test_error();
  const int evaluated = group.test_error().count;
  std::string text = error_text(error);
  if (error.count > 0 && error.count < evaluated)
    text += fmt::format(" ({} of {})", error.count, evaluated);
  return text;
}

bool any_is_recalibrated(const std::vector<Group>& groups) {
  return std::any_of(groups.begin(), groups.end(),
                     [](const Group& group) { return group.recalibrated_test_error().count > 0; });
}

std::string runs_text(const Group& group) {
  const auto unfinished = std::count_if(group.runs.begin(), group.runs.end(), [](const Run& run) {
    return run.status != "finished" && run.status != "failed";
  });
  return unfinished == 0 ? fmt::format("{}", group.runs.size())
                         : fmt::format("{} ({} unfinished)", group.runs.size(), unfinished);
}

struct Cell {
  const std::string* text;
  bool words = false;  ///< text is left-aligned, numbers right-aligned
};

std::vector<Cell> cells(const Row& row, bool recalibrated) {
  std::vector<Cell> all = {{&row.label, true}, {&row.runs}, {&row.test_error}};
  if (recalibrated) all.push_back({&row.recalibrated});
  for (const Cell& cell : {Cell{&row.best}, {&row.failed, true}, {&row.speed}, {&row.time}})
    all.push_back(cell);
  return all;
}

}  // namespace

Row heading(const std::vector<Group>& groups) {
  return {.label = "layer",
          .runs = "runs",
          .test_error = "test error",
          .recalibrated = any_is_recalibrated(groups) ? "recalibrated" : "",
          .best = "best",
          .failed = "failed",
          .speed = "images/s",
          .time = "time a run"};
}

std::vector<Row> rows(const std::vector<Group>& groups) {
  const bool recalibrated = any_is_recalibrated(groups);
  std::vector<Row> result;
  for (const Group& group : groups) {
    std::vector<double> seconds;
    for (const Run& run : group.runs)
      if (!run.epochs.empty()) seconds.push_back(run.seconds);
    const Spread error = group.test_error(), speed = group.images_per_second();
    result.push_back({.label = group.label,
                      .runs = runs_text(group),
                      .test_error = error_text(error),
                      .recalibrated = recalibrated ? recalibrated_text(group) : "",
                      .best = percent(error.least, 2),
                      .failed = failed_at(group),
                      .speed = speed.count ? fmt::format("{:.0f}", speed.mean) : "-",
                      .time = duration(spread(seconds).mean)});
  }
  return result;
}

std::string text_table(const std::vector<Group>& groups) {
  auto lines = rows(groups);
  lines.insert(lines.begin(), heading(groups));
  const bool recalibrated = !lines.front().recalibrated.empty();
  std::vector<std::size_t> widths(cells(lines.front(), recalibrated).size());
  for (const Row& row : lines)
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], columns(*cells(row, recalibrated)[i].text));
  std::string out;
  for (const Row& row : lines) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const Cell cell = cells(row, recalibrated)[i];
      const std::string gap(widths[i] - columns(*cell.text), ' ');
      line += (i ? "  " : "") + (cell.words ? *cell.text + gap : gap + *cell.text);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
    if (&row == &lines.front()) out += std::string(columns(line), '-') + '\n';
  }
  return out;
}

}  // namespace keel::lab::report
