#pragma once

// Reads lab/experiments/NAME/recipe.toml: what an experiment runs, and the paper's figures for it.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/train/options.h"

namespace keel::lab::reproduce {

/// JSON that keeps the order of its entries. Everything in this folder reads and writes it.
using Json = nlohmann::ordered_json;

/// The paper's figures for a cell, in percent. Empty: the paper has none.
struct PaperFigures {
  std::optional<double> least, mean, deviation, success;

  bool any() const { return least || mean || success; }
};

struct Cell {
  std::string name;
  std::string row;              ///< the method, or what the rows of the paper's table are
  std::string column;           ///< e.g. "d = 8"
  std::string panel;            ///< the part of a figure; empty: the figure has only one
  std::optional<double> x;      ///< the x coordinate in the figure
  Json train = Json::object();  ///< options of keel train
  PaperFigures paper;
  std::string same_as;           ///< the cell whose trials this one shares
  double step_milliseconds = 0;  ///< time of a training step, measured like kStepMilliseconds

  std::string label() const { return column.empty() ? row : row + ", " + column; }
};

struct Recipe {
  std::string name;  ///< the folder's name
  std::string title;
  std::string kind;   ///< training, curves, or one of our own measurements
  std::string about;  ///< Markdown
  std::string notes;  ///< Markdown, after the tables
  std::int64_t order = 0;
  std::int64_t trials = 0;
  std::string results_of;           ///< curves: the experiment whose trials are drawn
  Json common = Json::object();     ///< options of keel train for every cell
  Json schedules = Json::object();  ///< by name: options of keel train
  std::string default_schedule;     ///< used if the command line names none
  Json settings = Json::object();   ///< of measurements
  std::vector<Cell> cells;

  const Cell* find(const std::string& cell) const;
  bool trains() const { return kind == "training" || kind == "curves"; }
};

/// The basis of the estimated costs.
constexpr double kStepMilliseconds = 2.1;  ///< ResNet18, batch 128, bfloat16, graph, H200
constexpr std::int64_t kStepsPerEpoch = 390;

/// Throws keel::Error with the file, the line and the problem.
Recipe read_recipe(const std::filesystem::path& file);

/// All recipes of a folder, by their `order`.
std::vector<Recipe> read_recipes(const std::filesystem::path& folder);

/// Options of keel train: the recipe's common ones, then the schedule's, then `given`.
Json common_options(const Recipe& recipe, const std::string& schedule, const Json& given);
/// The options of one cell. `given` (from the command line) wins over the cell.
TrainOptions cell_options(const Recipe& recipe, const Cell& cell, const std::string& schedule,
                          const Json& given);

/// "45 trials of 6 epochs, about 5.5 GPU minutes".
std::string cost(const Recipe& recipe, const std::string& schedule);

}  // namespace keel::lab::reproduce
