#include "lab/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/report/charts.h"
#include "lab/report/wording.h"
#include "lab/require.h"

namespace keel::lab::report {
namespace {

constexpr const char* kPageStyle = R"css(
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1200px; margin: 0 auto; padding: 24px 16px 60px; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 36px 0 12px; }
p { max-width: 75ch; }
.scroll { overflow-x: auto; margin: 12px 0; }
table { border-collapse: collapse; font-size: 0.92rem; background: var(--card); }
th { text-align: left; color: var(--soft); font-size: 0.8rem; }
th, td { padding: 8px 14px; border-bottom: 1px solid var(--rule); vertical-align: top; min-width: 4ch; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
li { color: var(--bad); margin-bottom: 8px; }
summary { cursor: pointer; color: var(--accent); }
footer { margin-top: 40px; color: var(--soft); font-size: 0.85rem; }
@media print { .scroll { break-inside: avoid; } }
)css";

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
  return error.count == 0 ? "-" : mean_text(100 * error.mean, 100 * error.deviation) + " %";
}

std::string further_text(const Group& group, double Result::*which) {
  const Spread error = group.test_error(which);
  const int evaluated = group.test_error().count;
  std::string text = error_text(error);
  if (error.count > 0 && error.count < evaluated)
    text += fmt::format(" ({} of {})", error.count, evaluated);
  return text;
}

/// The test errors beside the first that any of these runs has, and their names.
std::vector<std::pair<const char*, double Result::*>> further_errors(
    const std::vector<Group>& groups) {
  std::vector<std::pair<const char*, double Result::*>> all{
      {"recalibrated", &Result::recalibrated_test_error},
      {"followed", &Result::followed_test_error}};
  std::erase_if(all, [&](const auto& one) {
    return std::ranges::none_of(
        groups, [&](const Group& group) { return group.test_error(one.second).count > 0; });
  });
  return all;
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

std::string introduction(const std::vector<Group>& groups) {
  std::size_t runs = 0;
  int failures = 0;
  std::set<std::string> devices;
  for (const Group& group : groups) {
    runs += group.runs.size();
    failures += group.failures();
    for (const Run& run : group.runs)
      if (!run.device.empty()) devices.insert(run.device);
  }
  std::string text = counted(std::int64_t(runs), "run");
  if (devices.size() == 1) text += ", on " + *devices.begin();
  text += failures == 0 ? ". None failed." : fmt::format(". {} failed.", failures);
  return escaped(text);
}

std::string drawn(const std::string& svg) { return "<div class='scroll'>\n" + svg + "</div>\n"; }

std::string curves(const std::vector<Group>& groups, const std::vector<std::string>& labels) {
  const Charts charts = curve_charts(groups);
  if (charts.empty()) return {};
  return "<h2>Curves</h2>\n<p>At the end: a dot for each seed. Elsewhere a line for each seed. "
         "A cross marks where a run ended with a value that is not finite. The gradient is that "
         "of what comes before the layer, the largest of each interval.</p>\n" +
         drawn(picture(charts, labels));
}

std::string failures(const std::vector<Group>& groups) {
  std::string out;
  for (const Group& group : groups)
    for (const Run& run : group.runs)
      if (run.result.failure)
        out += fmt::format("<li>{}, {}: {}</li>\n", escaped(group.label),
                           escaped(run.setting("seed").empty() ? run.folder.string()
                                                               : "seed " + run.setting("seed")),
                           escaped(run.result.failure->what));
  return out.empty() ? "" : "<h2>What failed, and where</h2>\n<ul>\n" + out + "</ul>\n";
}

std::string spectra(const std::vector<Group>& groups, const std::vector<std::string>& labels) {
  const Charts charts = spectrum_charts(groups);
  if (charts.empty()) return {};
  return "<h2>The layers' spectra</h2>\n<p>Eigenvalues of the covariance of a layer's input, at "
         "the end of the first run of each entry. A flat end is a repeated eigenvalue.</p>\n" +
         drawn(picture(charts, labels));
}

/// Quoted as in RFC 4180. A spreadsheet would take a text that begins with one of these signs for a formula.
std::string cell(std::string text) {
  if (text.find_first_of("=+-@") == 0) text.insert(0, 1, '\'');
  for (auto i = text.find('"'); i != text.npos; i = text.find('"', i + 2)) text.insert(i, 1, '"');
  return '"' + text + '"';
}

template <typename Record>
std::string lines(const std::string& run, const std::vector<Record>& records) {
  std::string out;
  for (const Record& record : records) {
    const auto json = to_json(record);
    for (const auto& [name, value] : json.items())
      if (value.is_number() && name != "step" && name != "epoch")
        out += fmt::format("{},{},{},{},{}\n", run, record.step, record.epoch, name, value.dump());
  }
  return out;
}

std::string numbers(const PageOptions& options) {
  if (options.numbers.empty()) return {};
  return fmt::format("<p>Every number of the curves: <a href='./{0}'>{0}</a></p>\n",
                     escaped(options.numbers));
}

std::string settings(const std::vector<Group>& groups) {
  const auto hidden = [](const std::string& title, const Table& table) {
    return fmt::format("<details><summary>{}</summary>{}</details>\n", title, table.html());
  };
  std::string out = "<h2>Settings</h2>\n";
  const auto differing = differing_settings(groups);
  std::set<std::string> left_out(differing.begin(), differing.end());
  left_out.insert({"seed", "run", "resume"});
  Table shared({"option", "value"}, 2);
  for (const auto& [name, value] : groups.front().runs.front().settings)
    if (!left_out.count(name)) shared.add({name, value.empty() ? "-" : value});
  out += hidden(groups.size() > 1 ? "What all runs share" : "All settings", shared);
  const auto further = further_errors(groups);
  std::vector<std::string> of_runs{"folder", "seed", "status", "test error"};
  for (const auto& one : further) of_runs.push_back(one.first);
  Table folders(of_runs, 3);
  for (const Group& group : groups)
    for (const Run& run : group.runs) {
      const auto error = [&](double value) {
        return percent(run.result.failure ? kNotDone : value, 2);
      };
      std::vector<std::string> row{run.folder.string(), run.setting("seed"), run.result.status,
                                   error(run.result.test_error)};
      for (const auto& one : further) row.push_back(error(run.result.*one.second));
      folders.add(row);
    }
  return out + hidden("Runs and their folders", folders);
}

}  // namespace

Table results_table(const std::vector<Group>& groups) {
  const auto further = further_errors(groups);
  std::vector<std::string> heading{"layer", "runs", "test error"};
  for (const auto& one : further) heading.push_back(one.first);
  heading.insert(heading.end(), {"best", "failed", "images/s", "time a run"});
  Table table(heading);
  for (const Group& group : groups) {
    std::vector<std::string> row{group.label, runs_text(group), error_text(group.test_error())};
    for (const auto& one : further) row.push_back(further_text(group, one.second));
    row.insert(row.end(), {percent(group.test_error().least, 2), failed_at(group),
                           speed_text(group), time_text(group)});
    table.add(row);
  }
  return table;
}

std::string values(const std::vector<Group>& groups) {
  std::string out = std::string(kValuesMark) + "\n";
  for (const Group& group : groups)
    for (const Run& run : group.runs) {
      const auto which = fmt::format("{},{},{}", cell(group.label), cell(run.folder.string()),
                                     cell(run.setting("seed")));
      out += lines(which, run.steps) + lines(which, run.epochs);
    }
  return out;
}

std::string page(const std::vector<Group>& groups, const PageOptions& options) {
  std::vector<std::string> labels;
  for (const Group& group : groups) labels.push_back(group.label);
  return fmt::format(
             "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n{}\n"
             "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
             "<title>{}</title>\n<style>{}{}</style></head>\n<body><main>\n<h1>{}</h1>\n<p>{}</"
             "p>\n",
             kPageMark, escaped(options.title), kPalette, kPageStyle, escaped(options.title),
             introduction(groups)) +
         "<h2>Results</h2>\n" + results_table(groups).html() + numbers(options) +
         curves(groups, labels) + failures(groups) + spectra(groups, labels) + settings(groups) +
         "<footer>" + escaped(options.made_by) + "</footer>\n</main></body></html>\n";
}

}  // namespace keel::lab::report
