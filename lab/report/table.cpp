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
    if (run.result.failure && (first == 0 || run.result.failure->step < first))
      first = run.result.failure->step;
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

std::string runs_text(const Group& group) {
  const auto unfinished = std::ranges::count_if(group.runs, [](const Run& run) {
    return run.result.status != "finished" && run.result.status != "failed";
  });
  return unfinished == 0 ? fmt::format("{}", group.runs.size())
                         : fmt::format("{} ({} unfinished)", group.runs.size(), unfinished);
}

std::string speed_text(const Group& group) {
  const Spread speed = group.images_per_second();
  return speed.count ? fmt::format("{:.0f}", speed.mean) : "-";
}

std::string time_text(const Group& group) {
  std::vector<double> seconds;
  for (const Run& run : group.runs)
    if (!run.epochs.empty()) seconds.push_back(run.seconds);
  return duration(spread(seconds).mean);
}

}  // namespace

bool any_is_recalibrated(const std::vector<Group>& groups) {
  return std::ranges::any_of(
      groups, [](const Group& group) { return group.recalibrated_test_error().count > 0; });
}

std::vector<Column> table_columns(const std::vector<Group>& groups) {
  std::vector<Column> columns;
  const auto add = [&](const char* name, const auto& text, bool words = false) {
    Column& column = columns.emplace_back(Column{name, {}, words});
    for (const Group& group : groups) column.cells.push_back(text(group));
  };
  add(
      "layer", [](const Group& group) { return group.label; }, true);
  add("runs", runs_text);
  add("test error", [](const Group& group) { return error_text(group.test_error()); });
  if (any_is_recalibrated(groups)) add("recalibrated", recalibrated_text);
  add("best", [](const Group& group) { return percent(group.test_error().least, 2); });
  add("failed", failed_at, true);
  add("images/s", speed_text);
  add("time a run", time_text);
  return columns;
}

std::string text_table(const std::vector<Group>& groups) {
  std::vector<std::string> lines(1 + groups.size());
  for (Column column : table_columns(groups)) {
    column.cells.insert(column.cells.begin(), column.name);
    std::size_t width = 0;
    for (const auto& cell : column.cells) width = std::max(width, columns(cell));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string& cell = column.cells[i];
      const std::string gap(width - columns(cell), ' ');
      lines[i] += (lines[i].empty() ? "" : "  ") + (column.words ? cell + gap : gap + cell);
    }
  }
  std::string out;
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
    if (&line == &lines.front()) out += std::string(columns(line), '-') + '\n';
  }
  return out;
}

}  // namespace keel::lab::report
