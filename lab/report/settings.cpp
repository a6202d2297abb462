#include "lab/report/settings.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "keel/version.h"
#include "lab/report/groups.h"
#include "lab/storage/toml.h"

namespace keel::lab::report {
namespace {

std::string value_text(const nlohmann::json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return toml_text(value.get<std::string>());
  const bool fits =
      !value.is_number_unsigned() || std::in_range<std::int64_t>(value.get<std::uint64_t>());
  return fits ? value.dump() : toml_text(value.dump());  // TOML's integers end at 2^63 - 1
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
  const auto json = to_json(options);
  for_each_field(options, [&](const std::string& name, About about, const auto&,
                              const std::string& help, const auto& valid) {
    if (about == About::call) return;
    const auto range = valid_text(valid);
    out += fmt::format("\n# {}{}\n", help, range.empty() ? "" : " (" + range + ")");
    const auto value = value_text(json.at(name));
    out += value.empty() ? fmt::format("# {} =\n", name) : fmt::format("{} = {}\n", name, value);
  });
  return out;
}

}  // namespace keel::lab::report
