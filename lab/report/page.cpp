#include "lab/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lab/number.h"
#include "lab/report/charts.h"
#include "lab/report/page_style.h"
#include "lab/report/svg.h"
#include "lab/report/table.h"
#include "lab/report/wording.h"

namespace keel::lab::report {
namespace {

std::string card(const Figure& figure) {
  return fmt::format(
      "<figure class='card'><figcaption><h3>{}</h3><p>{}</p></figcaption>{}</figure>\n",
      escaped(figure.title), escaped(figure.caption), figure.svg);
}

std::string named(std::size_t index, const std::string& label) {
  return fmt::format("<span>{}{}</span>", swatch_svg(int(index)), escaped(label));
}

std::string legend(const std::vector<Group>& groups) {
  std::string out = "<div class='legend'>";
  for (std::size_t i = 0; i < groups.size(); ++i) out += named(i, groups[i].label);
  return out + "</div>\n";
}

/// The value of a setting if all runs have the same, otherwise an empty text.
std::string common(const std::vector<Group>& groups, const std::string& name) {
  std::set<std::string> values;
  for (const Group& group : groups)
    for (const Run& run : group.runs) values.insert(run.setting(name));
  return values.size() == 1 ? *values.begin() : "";
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
  if (const auto model = common(groups, "model"); !model.empty()) text += " of " + model;
  if (const auto source = common(groups, "source"); !source.empty()) text += " on " + source;
  if (const auto epochs = common(groups, "epochs"); !epochs.empty())
    text += fmt::format(", {} epoch{}", epochs, epochs == "1" ? "" : "s");
  if (devices.size() == 1) text += ", on " + *devices.begin();
  text += failures == 0 ? ". None failed." : fmt::format(". {} failed.", failures);
  return escaped(text);
}

std::string table(const std::vector<Group>& groups) {
  const auto columns = table_columns(groups);
  std::string out = "<div class='card'><table class='cards'><thead><tr>";
  for (const Column& column : columns)
    out += fmt::format("<th class='{}'>{}</th>", column.words ? "" : "n", escaped(column.name));
  out += "</tr></thead><tbody>\n";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    out += fmt::format("<tr><td class='label'>{}</td>", named(i, groups[i].label));
    for (std::size_t c = 1; c < columns.size(); ++c) {
      const std::string name = escaped(columns[c].name), text = escaped(columns[c].cells[i]);
      out += columns[c].words
                 ? fmt::format("<td class='words' data-name='{}'><span class='{}'>{}</span></td>",
                               name, groups[i].failures() ? "bad" : "soft", text)
                 : fmt::format("<td class='n' data-name='{}'>{}</td>", name, text);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string failure_text(const Run& run) {
  const auto seed = run.setting("seed");
  return fmt::format("<p>{}</p><p class='soft'>{}</p>", escaped(run.result.failure->what),
                     seed.empty() ? escaped(run.folder.string()) : "seed " + escaped(seed));
}

std::string failures(const std::vector<Group>& groups) {
  std::string out;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    if (group.failures() == 0) continue;
    std::string runs, others;
    for (const Run& run : group.runs) {
      if (!run.result.failure) continue;
      (runs.empty() ? runs : others) += failure_text(run);
    }
    if (!others.empty()) {
      others = fmt::format("<details><summary>{} more of this layer</summary>{}</details>",
                           group.failures() - 1, others);
    }
    out += fmt::format("<div class='card failure'><h3>{}</h3>{}{}</div>\n", named(i, group.label),
                       runs, others);
  }
  if (out.empty()) return out;
  return "<h2>What failed, and where</h2>\n<div class='failures'>\n" + out + "</div>\n";
}

/// Eigenvalues of all layers, but covariances of the first layer only: those of a large network would not fit a page.
std::string spectra(const std::vector<Group>& groups) {
  const auto layers = layers_with_spectra(groups);
  if (layers.empty()) return {};
  const Figure spectrum = spectrum_figure(groups, layers.front());
  if (spectrum.svg.empty()) return {};
  std::string matrices;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto matrix = covariance_of(groups[i].runs.front(), layers.front());
    double limit = 0;
    for (const auto& row : matrix)
      for (const double value : row)
        if (std::isfinite(value)) limit = std::max(limit, std::abs(value));
    if (!(limit > 0)) continue;
    matrices += fmt::format(
        "<figure><figcaption class='soft'>{}</figcaption>{}{}</figure>\n",
        named(i, groups[i].label),
        matrix_svg(matrix, limit, "Covariance of the layer's input, " + groups[i].label),
        matrix_key_svg(limit));
  }
  std::string out = "<h2>The layer's spectrum</h2>\n<div class='grid spectra'>\n" + card(spectrum);
  if (!matrices.empty()) {
    out +=
        "<div class='card wide'><h3>Covariance of the layer's input: " + escaped(layers.front()) +
        "</h3><p class='soft'>Channel against channel, at the end of the run. Blank rows are "
        "channels that are zero everywhere.</p><div class='matrices'>\n" +
        matrices + "</div></div>\n";
  }
  out += "</div>\n";
  if (layers.size() == 1) return out;
  std::string others;
  for (std::size_t i = 1; i < layers.size(); ++i)
    if (const Figure figure = spectrum_figure(groups, layers[i]); !figure.svg.empty())
      others += card(figure);
  return out + fmt::format(
                   "<details class='card'><summary>{} more layers</summary><div "
                   "class='grid'>\n{}</div></details>\n",
                   layers.size() - 1, others);
}

std::string setting_list(const Run& run, const std::set<std::string>& left_out) {
  std::string out = "<dl>";
  for (const auto& [name, value] : run.settings) {
    if (left_out.count(name)) continue;
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escaped(name),
                       value.empty() ? "-" : escaped(value));
  }
  return out + "</dl>";
}

std::string settings(const std::vector<Group>& groups) {
  const auto differing = differing_settings(groups);
  std::set<std::string> left_out(differing.begin(), differing.end());
  left_out.insert({"seed", "run", "resume"});
  std::string out = "<h2>Settings</h2>\n";
  if (!differing.empty()) {
    out += "<div class='card scroll'><h3>What differs</h3><table><thead><tr><th></th>";
    for (const auto& name : differing) out += fmt::format("<th>{}</th>", escaped(name));
    out += "</tr></thead><tbody>\n";
    for (std::size_t i = 0; i < groups.size(); ++i) {
      out += fmt::format("<tr><td class='label'>{}</td>", named(i, groups[i].label));
      for (const auto& name : differing) {
        const auto value = groups[i].runs.front().setting(name);
        out += fmt::format("<td>{}</td>", value.empty() ? "-" : escaped(value));
      }
      out += "</tr>\n";
    }
    out += "</tbody></table></div>\n";
  }
  out += fmt::format("<details class='card'><summary>{}</summary>{}</details>\n",
                     groups.size() > 1 ? "What all runs share" : "All settings",
                     setting_list(groups.front().runs.front(), left_out));
  const bool recalibrated = any_is_recalibrated(groups);
  out +=
      "<details class='card'><summary>Runs and their folders</summary><div class='scroll'><table>"
      "<thead><tr><th>folder</th><th>seed</th><th>status</th><th class='n'>test error</th>";
  if (recalibrated) out += "<th class='n'>recalibrated</th>";
  out += "</tr></thead><tbody>\n";
  for (const Group& group : groups) {
    for (const Run& run : group.runs) {
      out += fmt::format("<tr><td><code>{}</code></td><td>{}</td><td>{}</td>",
                         escaped(run.folder.string()), escaped(run.setting("seed")),
                         escaped(run.result.status));
      const auto error = [&](double value) {
        return fmt::format("<td class='n'>{}</td>",
                           percent(run.result.failure ? kUnknown : value, 2));
      };
      out += error(run.result.test_error);
      if (recalibrated) out += error(run.result.recalibrated_test_error);
      out += "</tr>\n";
    }
  }
  return out + "</tbody></table></div></details>\n";
}

}  // namespace

std::string page(const std::vector<Group>& groups, const PageOptions& options) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n{3}\n"
      "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
      "<meta name='color-scheme' content='light "
      "dark'>\n<title>{0}</title>\n<style>{1}</style></head>\n"
      "<body><main>\n<h1>{0}</h1>\n<p>{2}</p>\n",
      escaped(options.title), std::string(kPalette) + kPageStyle + kChartStyle,
      introduction(groups), kPageMark);
  out += "<h2>Results</h2>\n" + table(groups);
  out += "<section><h2>Curves</h2>\n" + legend(groups) + "<div class='grid'>\n";
  if (const Figure final_error = final_error_figure(groups); !final_error.svg.empty())
    out += card(final_error);
  for (const Figure& figure : curve_figures(groups)) out += card(figure);
  out += "</div></section>\n" + failures(groups) + spectra(groups) + settings(groups);
  if (!options.made_by.empty()) out += "<footer>" + escaped(options.made_by) + "</footer>\n";
  return out + "</main></body></html>\n";
}

}  // namespace keel::lab::report
