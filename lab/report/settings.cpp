#include "lab/report/settings.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "keel/version.h"
#include "lab/report/groups.h"
#include "lab/storage/toml.h"

namespace keel::lab::report {
namespace {

const std::set<std::string> kOfOneCall = {"run", "resume"};

std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(std::int64_t value) { return fmt::format("{}", value); }
std::string value_text(std::uint64_t value) {
  const std::string digits = fmt::format("{}", value);
  return std::in_range<std::int64_t>(value) ? digits : toml_text(digits);  // beyond TOML's range
}
std::string value_text(double value) {
  std::string text = fmt::format("{}", value);  // the shortest text that reads back exactly
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}
std::string value_text(const std::string& value) { return toml_text(value); }
std::string value_text(const std::filesystem::path& value) { return value_text(value.string()); }
std::string value_text(const std::optional<double>& value) {
  return value ? value_text(*value) : std::string();
}

}  // namespace

std::string valid_text(const Range& range) {
  if (std::isinf(range.most)) return fmt::format("at least {:.10g}", range.least);
  return fmt::format("{:.10g} ... {:.10g}", range.least, range.most);
}

std::string valid_text(const OneOf& choice) {
  std::string text;
  for (std::size_t i = 0; i < choice.choices.size(); ++i) {
    if (i) text += i + 1 < choice.choices.size() ? ", " : " or ";
    text += choice.choices[i];
  }
  return text;
}

std::string valid_text(const Anything&) { return {}; }

std::string layer_name(const TrainOptions& options) {
  const auto json = to_json(options);
  return layer_name([&](const std::string& name) {
    const auto& value = json.at(name);
    if (value.is_null()) return std::string();
    return value.is_string() ? value.get<std::string>() : value.dump();
  });
}

std::string toml(const TrainOptions& options) {
  std::string out = fmt::format("# Settings of keel train, resolved by keel {}.\n", KEEL_VERSION);
  for_each_field(options, [&](const std::string& name, const auto& field, const std::string& help,
                              const auto& valid) {
    if (kOfOneCall.count(name)) return;
    const auto range = valid_text(valid);
    out += fmt::format("\n# {}{}\n", help, range.empty() ? "" : " (" + range + ")");
    const auto value = value_text(field);
    out += value.empty() ? fmt::format("# {} =\n", name) : fmt::format("{} = {}\n", name, value);
  });
  return out;
}

}  // namespace keel::lab::report
