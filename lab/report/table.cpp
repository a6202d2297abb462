#include "lab/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

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

std::string error_text(const Group& group) {
  const Spread error = group.test_error();
  if (error.count == 0) return "-";
  return error.count == 1
             ? percent(error.mean, 2)
             : fmt::format("{:.2f} ± {:.2f} %", 100 * error.mean, 100 * error.deviation);
}

std::string runs_text(const Group& group) {
  const auto unfinished = std::count_if(group.runs.begin(), group.runs.end(), [](const Run& run) {
    return run.status != "finished" && run.status != "failed";
  });
  return unfinished == 0 ? fmt::format("{}", group.runs.size())
                         : fmt::format("{} ({} unfinished)", group.runs.size(), unfinished);
}

std::array<const std::string*, 7> cells(const Row& row) {
  return {&row.label, &row.runs, &row.test_error, &row.best, &row.failed, &row.speed, &row.time};
}

}  // namespace

Row heading() {
  return {"layer", "runs", "test error", "best", "failed", "images/s", "time a run"};
}

std::vector<Row> rows(const std::vector<Group>& groups) {
  std::vector<Row> result;
  for (const Group& group : groups) {
    std::vector<double> seconds;
    for (const Run& run : group.runs)
      if (!run.epochs.empty()) seconds.push_back(run.seconds);
    const Spread speed = group.images_per_second();
    result.push_back({group.label, runs_text(group), error_text(group),
                      percent(group.test_error().least, 2), failed_at(group),
                      speed.count ? fmt::format("{:.0f}", speed.mean) : "-",
                      duration(spread(seconds).mean)});
  }
  return result;
}

std::string text_table(const std::vector<Group>& groups) {
  auto lines = rows(groups);
  lines.insert(lines.begin(), heading());
  std::array<std::size_t, 7> widths{};
  for (const Row& row : lines)
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], columns(*cells(row)[i]));
  std::string out;
  for (const Row& row : lines) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string& cell = *cells(row)[i];
      const std::string gap(widths[i] - columns(cell), ' ');
      const bool words = i == 0 || i == 4;  // words to the left, numbers to the right
      line += (i ? "  " : "") + (words ? cell + gap : gap + cell);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
    if (&row == &lines.front()) out += std::string(columns(line), '-') + '\n';
  }
  return out;
}

}  // namespace keel::lab::report
