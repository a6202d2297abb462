#include "lab/reproduce/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/toml.h"

namespace keel::lab::reproduce {
namespace {

namespace fs = std::filesystem;

/// The position of a table, for messages: "recipe.toml, line 7: cells.bn".
struct Place {
  const std::string& file;
  const TomlLines& lines;
  std::string table = {};

  Place inside(const std::string& name) const {
    return {file, lines, table.empty() ? name : table + "." + name};
  }
  std::string text() const {
    const auto found = lines.find(table);
    const std::string line =
        found == lines.end() ? "" : fmt::format(", line {}: {}", found->second, table);
    return file + line;
  }
};

/// Reads entries of a table and removes them. Entries left at the end are errors.
class Taker {
 public:
  Taker(const Json& table, Place place) : table_(table), place_(std::move(place)) {
    require(table.is_object(), "{}: expected a table", place_.text());
  }

  template <typename T>
  T take(const char* name, T otherwise) {
    known_.insert(name);
    if (!table_.contains(name)) return otherwise;
    const Json& value = table_.at(name);
    const auto expect = [&](bool fits, const char* kind) {
      require(fits, "{}: expected {}, got {}", place_.inside(name).text(), kind,
              value.dump().substr(0, 40));
    };
    // A plain get<> would silently convert other number types, or true.
    if constexpr (std::is_same_v<T, std::string>) expect(value.is_string(), "text");
    if constexpr (std::is_same_v<T, bool>) expect(value.is_boolean(), "true or false");
    if constexpr (std::is_same_v<T, double>) expect(value.is_number(), "a number");
    if constexpr (std::is_same_v<T, std::int64_t>)
      expect(value.is_number_integer(), "a whole number");
    if constexpr (std::is_same_v<T, Json>) expect(value.is_object(), "a table");
    return value.get<T>();
  }
  std::optional<double> number(const char* name) {
    return table_.contains(name) ? std::optional(take(name, 0.0))
                                 : (known_.insert(name), std::nullopt);
  }
  void end() const {
    for (const auto& [name, value] : table_.items())
      require(known_.count(name) > 0, "{}: unknown name '{}'", place_.inside(name).text(), name);
  }

 private:
  const Json& table_;
  const Place place_;
  std::set<std::string> known_;
};

PaperFigures paper_figures(const Json& table, const Place& place) {
  Taker from(table, place);
  PaperFigures figures{from.number("min"), from.number("mean"), from.number("std"),
                       from.number("success")};
  from.end();
  return figures;
}

/// Trials' folders and files are named after it, so it must not contain a path.
bool is_plain(const std::string& name) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return !name.empty() && is_letter(name[0]) && std::ranges::all_of(name, [&](char c) {
    return is_letter(c) || c == '-' || c == '_' || c == '.';
  });
}

Cell cell_of(const std::string& name, const Json& table, const Place& place) {
  require(is_plain(name),
          "{}: expected a cell's name of letters, digits, '-', '_' and '.', with a letter or digit "
          "in front, got '{}'",
          place.text(), name);
  Taker from(table, place);
  Cell cell;
  cell.name = name;
  cell.row = from.take<std::string>("row", name);
  cell.column = from.take<std::string>("column", "");
  cell.panel = from.take<std::string>("panel", "");
  cell.x = from.number("x");
  cell.train = from.take<Json>("train", Json::object());
  cell.paper = paper_figures(from.take<Json>("paper", Json::object()), place.inside("paper"));
  cell.same_as = from.take<std::string>("same_as", "");
  cell.step_milliseconds = from.take("step_milliseconds", kStepMilliseconds);
  from.end();
  return cell;
}

/// Checks what costs and pages take from options and settings. The rest is checked where it is used.
void check_options(const Json& options, const Place& place) {
  Taker from(options, place);
  from.number("epochs");
  from.number("batch");
}
void check_settings(const Json& settings, const Place& place) {
  Taker from(settings, place);
  for (const char* name : {"cost", "x_label"}) from.take<std::string>(name, "");
  for (const char* name : {"costs", "gradients"}) from.take(name, false);
}

Json merged(Json under, const Json& over) {
  for (const auto& [name, value] : over.items()) under[name] = value;
  return under;
}

}  // namespace

const Cell* Recipe::find(const std::string& cell) const {
  const auto found = std::ranges::find(cells, cell, &Cell::name);
  return found == cells.end() ? nullptr : &*found;
}

Recipe read_recipe(const fs::path& file) {
  const std::string name = file.string();
  TomlLines lines;
  const Json table = parse_toml(read_file(file), name, &lines);
  const Place place{name, lines};
  Taker from(table, place);
  Recipe recipe;
  recipe.name = fs::absolute(file).parent_path().filename().string();
  recipe.title = from.take<std::string>("title", recipe.name);
  recipe.kind = from.take<std::string>("kind", "training");
  recipe.about = from.take<std::string>("about", "");
  recipe.notes = from.take<std::string>("notes", "");
  recipe.order = from.take<std::int64_t>("order", 0);
  recipe.trials = from.take<std::int64_t>("trials", recipe.trains() ? 3 : 0);
  recipe.results_of = from.take<std::string>("results_of", "");
  recipe.common = from.take<Json>("common", Json::object());
  recipe.schedules = from.take<Json>("schedule", Json::object());
  recipe.default_schedule = from.take<std::string>("default_schedule", "short");
  recipe.settings = from.take<Json>("settings", Json::object());
  const Json cells = from.take<Json>("cells", Json::object());
  from.end();
  check_settings(recipe.settings, place.inside("settings"));
  check_options(recipe.common, place.inside("common"));
  for (const auto& [schedule, options] : recipe.schedules.items())
    check_options(options, place.inside("schedule").inside(schedule));
  for (const auto& [cell, content] : cells.items())
    recipe.cells.push_back(cell_of(cell, content, place.inside("cells").inside(cell)));
  for (const Cell& cell : recipe.cells)
    require(cell.same_as.empty() || recipe.find(cell.same_as) != nullptr,
            "{}: cells.{}: no cell is called '{}'", file.string(), cell.name, cell.same_as);
  require(recipe.schedules.empty() || recipe.schedules.contains(recipe.default_schedule),
          "{}: default_schedule: no schedule is called '{}'", file.string(),
          recipe.default_schedule);
  return recipe;
}

std::vector<Recipe> read_recipes(const fs::path& folder) {
  require(fs::is_directory(folder),
          "expected a folder of recipes, got {}: run it in the source tree, or name the folder "
          "with --recipes",
          folder.string());
  std::vector<Recipe> recipes;
  for (const auto& entry : fs::directory_iterator(folder))
    if (fs::exists(entry.path() / "recipe.toml"))
      recipes.push_back(read_recipe(entry.path() / "recipe.toml"));
  std::ranges::sort(recipes, {}, [](const Recipe& r) { return std::tie(r.order, r.name); });
  return recipes;
}

Json common_options(const Recipe& recipe, const std::string& schedule, const Json& given) {
  require(recipe.schedules.empty() || recipe.schedules.contains(schedule),
          "{} has no schedule '{}'", recipe.name, schedule);
  const Json scheduled = recipe.schedules.empty() ? Json::object() : recipe.schedules.at(schedule);
  return merged(merged(recipe.common, scheduled), given);
}

TrainOptions cell_options(const Recipe& recipe, const Cell& cell, const std::string& schedule,
                          const Json& given) {
  const Json all =
      merged(merged(common_options(recipe, schedule, Json::object()), cell.train), given);
  try {
    const TrainOptions options = train_options(nlohmann::json(all));
    validate(options);
    return options;
  } catch (const Error& error) {
    throw Error(fmt::format("{}, cell {}: {}", recipe.name, cell.name, error.what()));
  }
}

std::string cost(const Recipe& recipe, const std::string& schedule) {
  if (recipe.settings.contains("cost")) return recipe.settings.at("cost").get<std::string>();
  if (!recipe.results_of.empty())
    return fmt::format("nothing where {} has been run", recipe.results_of);
  const auto options = common_options(recipe, schedule, Json::object());
  const double epochs = options.value("epochs", 0.0);
  std::int64_t cells = 0;
  double minutes = 0;
  for (const Cell& cell : recipe.cells) {
    if (!cell.same_as.empty()) continue;
    ++cells;
    minutes +=
        double(recipe.trials) * epochs * double(kStepsPerEpoch) * cell.step_milliseconds / 6e4;
  }
  return fmt::format("{} ({} x {}) of {:g} epoch{}, about {:.0f} GPU minutes",
                     counted(cells * recipe.trials, "trial"), counted(cells, "cell"), recipe.trials,
                     epochs, epochs == 1 ? "" : "s", minutes);
}

}  // namespace keel::lab::reproduce
