#include "lab/train/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <set>
#include <thread>
#include <type_traits>
#include <utility>

#include "keel/version.h"
#include "lab/require.h"
#include "lab/storage/json.h"
#include "lab/storage/toml.h"

namespace keel::lab {
namespace {

using nlohmann::json;

template <typename Number>
void check(const char* name, const Number& value, const Range& range) {
  // Written so that NaN is rejected.
  if (double(value) >= range.least && double(value) <= range.most) return;
  throw Error(
      std::isinf(range.most)
          ? fmt::format("expected {} >= {}, got {}", name, range.least, value)
          : fmt::format("expected {} in [{}, {}], got {}", name, range.least, range.most, value));
}
void check(const char* name, const std::optional<double>& value, const Range& range) {
  if (value) check(name, *value, range);
}
void check(const char* name, const std::string& value, const OneOf& valid) {
  require_one_of(name, value, valid.choices);
}
void check_text(const char* name, const std::string& value) {
  require(is_utf8(value) && value.find('\0') == std::string::npos,
          "expected {} in UTF-8, as config.toml and checkpoints hold it, got '{}'", name, value);
}
template <typename Field>
void check(const char* name, const Field& value, const Anything&) {
  if constexpr (std::is_same_v<Field, std::filesystem::path>) check_text(name, value.string());
  if constexpr (std::is_same_v<Field, std::string>) check_text(name, value);
}

template <typename Field>
json written(const Field& field) {
  return field;
}
json written(const std::filesystem::path& field) { return field.string(); }
json written(const std::optional<double>& field) { return field ? json(*field) : json(); }

template <typename Field>
constexpr const char* kind() {
  if constexpr (std::is_same_v<Field, bool>) return "true or false";
  if constexpr (std::integral<Field>) return "a whole number";
  if constexpr (std::is_same_v<Field, double>) return "a number";
  if constexpr (std::is_same_v<Field, std::optional<double>>) return "a number or null";
  return "text";
}

/// An integer given as text. TOML integers end at 2^63 - 1, so larger ones are written as text.
std::optional<std::uint64_t> spelled(const json& value) {
  const auto* text = value.get_ptr<const std::string*>();
  return text != nullptr ? number_in<std::uint64_t>(*text) : std::nullopt;
}

template <typename Field>
bool fits(const json& value) {
  if constexpr (std::is_same_v<Field, bool>) return value.is_boolean();
  if constexpr (std::is_same_v<Field, std::uint64_t>)
    return value.is_number_unsigned() || spelled(value);
  if constexpr (std::is_same_v<Field, std::int64_t>)  // a larger number would become negative
    return value.is_number_integer() &&
           (!value.is_number_unsigned() || std::in_range<Field>(value.get<std::uint64_t>()));
  if constexpr (std::is_same_v<Field, double>) return value.is_number();
  if constexpr (std::is_same_v<Field, std::optional<double>>)
    return value.is_number() || value.is_null();
  return value.is_string();
}

template <typename Field>
void read(const json& value, Field& field) {
  if constexpr (std::is_same_v<Field, std::optional<double>>)
    field = value.is_null() ? std::nullopt : std::optional(value.template get<double>());
  else if constexpr (std::is_same_v<Field, std::filesystem::path>)
    field = value.template get<std::string>();
  else if constexpr (std::is_same_v<Field, std::uint64_t>)
    field = spelled(value) ? *spelled(value) : value.template get<std::uint64_t>();
  else
    field = value.template get<Field>();
}

/// Goes from `from` to `to` along half a cosine as x goes from 0 to 1.
double eased(double from, double to, double x) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * std::clamp(x, 0.0, 1.0))) / 2;
}

std::string value_text(const json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return toml_text(value.get<std::string>());
  const bool fits =
      !value.is_number_unsigned() || std::in_range<std::int64_t>(value.get<std::uint64_t>());
  return fits ? value.dump() : toml_text(value.dump());  // TOML's integers end at 2^63 - 1
}

}  // namespace

std::set<std::string> options_about(std::initializer_list<About> these) {
  std::set<std::string> names;
  const TrainOptions options;
  for_each_field(options,
                 [&](const char* name, About about, const auto&, const char*, const auto&) {
                   if (std::ranges::find(these, about) != these.end()) names.insert(name);
                 });
  return names;
}

const std::set<std::string>& options_beside_the_experiment() {
  using enum About;
  static const auto names = options_about({place, machine, seed, evaluation, records, call});
  return names;
}

void validate(const TrainOptions& options) {
  for_each_field(options, [](const char* name, About, const auto& field, const char*,
                             const auto& valid) { check(name, field, valid); });
  validate(options.model);
  validate(options.data);
  require(options.follow == "none" || can_follow(options.model.norm),
          "expected a norm that can follow (batch, or zca or pca with a rule of the library), got "
          "{} with rule {}",
          options.model.norm.kind, options.model.norm.rule);
  require(!options.resume || !options.run.empty(), "expected a run folder to resume, got none");
}

int threads_here(const TrainOptions& options) {
  const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  return int(std::min(options.threads, cores));
}

json to_json(const TrainOptions& options) {
  json result = json::object();
  for_each_field(options, [&](const char* name, About, const auto& field, const char*,
                              const auto&) { result[name] = written(field); });
  return result;
}

TrainOptions train_options(const json& given, TrainOptions result) {
  require(given.is_object(), "expected a JSON object, got {}",
          given.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 40));
  std::set<std::string> known;
  for_each_field(result, [&](const char* name, About, auto& field, const char*, const auto& valid) {
    using Field = std::decay_t<decltype(field)>;
    known.insert(name);
    if (!given.contains(name)) return;
    require(fits<Field>(given[name]), "expected {} to be {}, got {}", name, kind<Field>(),
            given[name].dump(-1, ' ', false, json::error_handler_t::replace));
    read(given[name], field);
    check(name, field, valid);
  });
  for (const auto& [name, value] : given.items())
    require(known.count(name) > 0, "unknown option '{}'", name);
  return result;
}

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

std::string to_toml(const TrainOptions& options) {
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

double learning_rate(const TrainOptions& options, std::int64_t done, std::int64_t steps) {
  const double highest = options.learning_rate;
  if (options.schedule == "constant") return highest;
  if (options.schedule == "paper") {
    // In integers, so that the sevenths of a run do not depend on rounding.
    const std::int64_t drops =
        (7 * done >= 2 * steps) + (7 * done >= 4 * steps) + (7 * done >= 6 * steps);
    return highest * std::pow(0.1, drops);
  }
  // The same end points as PyTorch's OneCycleLR.
  const double first = highest / 25, last = first / 1e4;
  const double top = std::max(options.warm_up * double(steps) - 1, 0.0), end = double(steps - 1);
  if (top > 0 && double(done) <= top) return eased(first, highest, double(done) / top);
  return eased(highest, last, end > top ? (double(done) - top) / (end - top) : 0);
}

}  // namespace keel::lab
