#include "lab/report/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace keel::lab::report {
namespace {

bool of_the_experiment(const std::string& setting) {
  return !options_beside_the_experiment().count(setting);
}

/// The layer's name covers these, so labels do not list them unless two labels are the same.
bool of_the_layer(const std::string& setting) {
  static const auto names = options_about({About::layer});
  return names.count(setting) > 0;
}

std::string identity(const Run& run) {
  std::string text;
  const std::map<std::string, std::string> sorted(run.settings.begin(), run.settings.end());
  for (const auto& [name, value] : sorted)
    if (of_the_experiment(name)) text += name + '=' + value + '\n';
  return text.empty() ? run.folder.string() : text;  // without settings each run is its own group
}

std::string words(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

/// "0.995" becomes "99.5".
std::string in_percent(const std::string& fraction) {
  return fmt::format("{:.4g}", 100 * std::strtod(fraction.c_str(), nullptr));
}

std::string folder_name(const Run& run) {
  const auto path = run.folder.lexically_normal();
  return (path.has_filename() ? path.filename() : path.parent_path().filename()).string();
}

void label_groups(std::vector<Group>& groups) {
  const auto differing = differing_settings(groups);
  std::map<std::string, int> uses;
  for (Group& group : groups) {
    const Run& run = group.runs.front();
    group.label = layer_name([&](const std::string& name) { return run.setting(name); });
    if (group.label.empty()) group.label = folder_name(run);
    for (const auto& name : differing)
      if (!of_the_layer(name))
        group.label += fmt::format(", {} {}", words(name), run.setting(name));
    ++uses[group.label];
  }
  for (Group& group : groups) {  // if labels are still equal, add the layer's settings
    if (uses[group.label] == 1) continue;
    for (const auto& name : differing)
      if (of_the_layer(name) && name != "norm" && name != "rule")
        group.label += fmt::format(", {} {}", words(name), group.runs.front().setting(name));
  }
}

}  // namespace

Spread spread(const std::vector<double>& values) {
  Spread s;
  double sum = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    s.least = s.count ? std::min(s.least, value) : value;
    s.most = s.count ? std::max(s.most, value) : value;
    sum += value;
    ++s.count;
  }
  if (s.count == 0) return s;
  s.mean = sum / s.count;
  if (s.count > 1) {
    double squares = 0;
    for (const double value : values)
      if (std::isfinite(value)) squares += (value - s.mean) * (value - s.mean);
    s.deviation = std::sqrt(squares / (s.count - 1));
  }
  return s;
}

int Group::failures() const {
  return int(
      std::ranges::count_if(runs, [](const Run& run) { return run.result.failure.has_value(); }));
}

Spread Group::test_error(double Result::*error) const {
  std::vector<double> values;
  for (const Run& run : runs)
    if (!run.result.failure) values.push_back(run.result.*error);
  return spread(values);
}

Spread Group::images_per_second() const {
  std::vector<double> rates;
  for (const Run& run : runs)
    if (run.result.images_per_second > 0) rates.push_back(run.result.images_per_second);
  return spread(rates);
}

std::vector<Group> grouped(const std::vector<Run>& runs) {
  std::vector<Group> groups;
  std::map<std::string, std::size_t> place;
  for (const Run& run : runs) {
    const auto [found, fresh] = place.try_emplace(identity(run), groups.size());
    if (fresh) groups.emplace_back();
    groups[found->second].runs.push_back(run);
  }
  label_groups(groups);
  return groups;
}

std::string layer_name(const std::function<std::string(const std::string&)>& setting) {
  const auto kind = setting("norm");
  if (kind.empty()) return {};
  if (kind == "batch") return "BatchNorm";
  if (kind == "none") return "none";
  if (kind != "zca" && kind != "pca") return kind;
  std::string name = kind == "zca" ? "ZCA" : "PCA";
  if (kind == "pca") {
    const auto components = setting("components");
    name += components.empty() || components == "0"
                ? fmt::format(" {} %", in_percent(setting("energy")))
                : fmt::format(" e={}", components);
  }
  if (kind == "zca" && setting("rank") == "full") name += " of full rank";
  if (kind == "zca" && setting("rank") == "algorithm1_margin") name += " with a margin";
  const auto size = setting("group_size");
  if (!size.empty() && size != "0") name += fmt::format(" d={}", size);
  if (const auto rule = setting("rule"); !rule.empty()) name += ", " + words(rule);
  if (const auto parameter = setting("parameter"); !parameter.empty())
    name += fmt::format(" {}", parameter);
  if (const auto where = setting("where"); where == "all")
    name += ", all norms";
  else if (!where.empty() && where != "first")
    name += ", at " + where;
  return name;
}

std::string layer_name(const TrainOptions& options) {
  const auto json = to_json(options);
  return layer_name([&](const std::string& name) {
    const auto& value = json.at(name);
    if (value.is_null()) return std::string();
    return value.is_string() ? value.get<std::string>() : value.dump();
  });
}

std::vector<std::string> differing_settings(const std::vector<Group>& groups) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Group& group : groups) {
    for (const auto& [name, value] : group.runs.front().settings) {
      if (!of_the_experiment(name) || !seen.insert(name).second) continue;
      const bool same = std::ranges::all_of(groups, [&, &name = name](const Group& g) {
        return g.runs.front().setting(name) == groups.front().runs.front().setting(name);
      });
      if (!same) names.push_back(name);
    }
  }
  return names;
}

}  // namespace keel::lab::report
