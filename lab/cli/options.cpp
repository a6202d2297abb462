#include "lab/cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "lab/cli/command.h"
#include "lab/report/wording.h"
#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/toml.h"
#include "lab/train/step.h"

namespace keel::cli {
namespace {

using lab::Anything;
using lab::OneOf;
using lab::Range;

/// `--learning-rate` for learning_rate.
std::string flag(std::string name) {
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

/// The heading in the help.
const char* heading_of(lab::About about) {
  using enum lab::About;
  switch (about) {
    case network:
    case layer:
      return "Network";
    case data:
    case place:
      return "Data";
    case training:
      return "Training";
    case arithmetic:
    case machine:
      return "Machine";
    default:
      return "Run";
  }
}

void restrict_to(CLI::Option* option, const Range& range) { option->check(within(range)); }
void restrict_to(CLI::Option* option, const OneOf& choice) {
  option->check(CLI::IsMember(choice.choices));
}
void restrict_to(CLI::Option*, const Anything&) {}

/// Accepts only digits. CLI11 would read -1 as 2^64 - 1 and an empty string as 0.
template <typename Number>
CLI::Validator whole_number() {
  return CLI::Validator(
      [](std::string& given) {
        if (lab::number_in<Number>(given)) return std::string();
        const std::string most =
            std::is_signed_v<Number> ? "" : fmt::format(" from 0 to {}", std::uint64_t(-1));
        return fmt::format("expected a whole number{}, got '{}'", most, given);
      },
      "");
}

template <typename Field>
CLI::Option* declare(CLI::App& app, const std::string& name, Field& field, const std::string& help,
                     const std::string& by_default) {
  if constexpr (std::is_same_v<Field, bool>) {
    const std::string standard = !by_default.empty() ? by_default : field ? "on" : "off";
    return app.add_flag(fmt::format("{},!--no-{}", flag(name), flag(name).substr(2)), field,
                        fmt::format("{} [{}]", help, standard));
  } else if constexpr (std::is_same_v<Field, std::filesystem::path>) {
    return app
        .add_option_function<std::string>(
            flag(name), [&field](const std::string& text) { field = text; }, help)
        ->type_name("PATH");
  } else if constexpr (std::is_same_v<Field, std::optional<double>>) {
    return app.add_option_function<double>(
        flag(name), [&field](double value) { field = value; }, help);
  } else {
    CLI::Option* option = app.add_option(flag(name), field, help)->capture_default_str();
    if constexpr (std::is_integral_v<Field>) option->check(whole_number<Field>());
    return option;
  }
}

}  // namespace

CLI::Validator within(const Range& range) {
  const auto text = lab::valid_text(range);
  return CLI::Validator(
      [range, text](std::string& given) {
        double value = 0;
        // Written so that NaN fails the check.
        if (CLI::detail::lexical_cast(given, value) && value >= range.least && value <= range.most)
          return std::string();
        return fmt::format("expected {}, got {}", text, given);
      },
      text);
}

void add_options(CLI::App& app, lab::TrainOptions& options, const std::set<std::string>& only,
                 const std::string& by_default) {
  lab::for_each_field(options, [&](const std::string& name, lab::About about, auto& field,
                                   const std::string& help, const auto& valid) {
    // The commands themselves declare the run folder and --resume.
    if (only.empty() ? about == lab::About::call : !only.count(name)) return;
    CLI::Option* option = declare(app, name, field, help, by_default);
    restrict_to(option, valid);
    if (!by_default.empty() && option->get_items_expected_max() > 0)
      option->default_str(by_default);
    option->group(heading_of(about))->take_last();  // lets a script append overrides
  });
}

void read_config(const CLI::App& app, const std::filesystem::path& file,
                 lab::TrainOptions& options) {
  of_the_command_line([&] {
    lab::TomlLines lines;
    const auto table = lab::parse_toml(lab::read_file(file), file.string(), &lines);
    std::set<std::string> seen;
    for (const auto& [key, value] : table.items()) {
      std::string name = key;
      std::ranges::replace(name, '-', '_');
      const auto place = fmt::format("{}, line {}: ", file.string(), lines.at(key));
      const CLI::Option* option = app.get_option_no_throw(flag(name));
      require(option != nullptr && option->get_configurable(), "{}unknown option '{}'", place, key);
      require(seen.insert(name).second, "{}'{}' is there twice", place, name);
      try {
        const auto with = lab::train_options({{name, nlohmann::json(value)}}, options);
        if (option->count() == 0) options = with;  // the command line wins
      } catch (const Error& error) {
        throw Error(place + error.what());
      }
    }
  });
}

nlohmann::json given_options(const CLI::App& app, const lab::TrainOptions& options) {
  const auto all = to_json(options);
  auto given = nlohmann::json::object();
  for (const auto& [name, value] : all.items()) {
    const CLI::Option* option = app.get_option_no_throw(flag(name));
    if (option != nullptr && option->count() > 0) given[name] = value;
  }
  return given;
}

void mention_fewer_threads(const lab::TrainOptions& options) {
  const unsigned cores = std::thread::hardware_concurrency();
  const char* const asked = std::getenv("OMP_NUM_THREADS");
  if (options.threads == 0 && asked != nullptr && cores > 0 && std::atoi(asked) > int(cores))
    lab::report::put(stderr,
                     "keel: OMP_NUM_THREADS asks for {} threads on {} core{}, which is slow: they "
                     "wait for each other\n",
                     std::atoi(asked), cores, cores == 1 ? "" : "s");
  const int here = lab::threads_here(options);
  if (here < options.threads)
    lab::report::put(
        stderr,
        fmt::format("keel: expected at most one thread per core, got threads = {}; {} {} used\n",
                    options.threads, here, here == 1 ? "is" : "are"));
}

void check(const lab::TrainOptions& options) {
  of_the_command_line([&] { validate(options); });
}

void check_machine(const lab::TrainOptions& options) {
  if (options.device != "cuda" && options.precision == "float32") return;  // works everywhere
  of_the_command_line([&] { lab::require_precision(options, lab::device_of(options)); });
}

}  // namespace keel::cli
