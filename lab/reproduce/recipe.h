#pragma once

// lab/experiments/NAME/recipe.toml: what an experiment runs, and the paper's figures for it.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/train/options.h"

namespace keel::lab::reproduce {

/// Everything this folder reads and writes keeps its order.
using Json = nlohmann::ordered_json;

/// What the paper printed for a cell, in percent. Empty: it printed nothing.
struct PaperFigures {
  std::optional<double> least, mean, deviation, success;

  bool any() const { return least || mean || success; }
};

struct Cell {
  std::string name;
  std::string row;              ///< the method, or whatever the paper's lines are
  std::string column;           ///< e.g. "d = 8"
  std::string panel;            ///< which part of a figure; empty: there is one
  std::optional<double> x;      ///< where the figure has it
  Json train = Json::object();  ///< options of keel train
  PaperFigures paper;
  std::string same_as;           ///< another cell whose trials are this one's
  double step_milliseconds = 0;  ///< the cost of a training step, measured like kStepMilliseconds

  std::string label() const { return column.empty() ? row : row + ", " + column; }
};

struct Recipe {
  std::string name;  ///< of its folder
  std::string title;
  std::string kind;   ///< training, curves, or one of our own measurements
  std::string about;  ///< Markdown
  std::string notes;  ///< Markdown, behind the tables
  std::int64_t order = 0;
  std::int64_t trials = 0;
  std::string results_of;           ///< curves: the experiment whose trials are drawn
  Json common = Json::object();     ///< options of keel train for every cell
  Json schedules = Json::object();  ///< by name: options of keel train
  std::string default_schedule;     ///< what it is run with where the command line names none
  Json settings = Json::object();   ///< of measurements
  std::vector<Cell> cells;

  const Cell* find(const std::string& cell) const;
  bool trains() const { return kind == "training" || kind == "curves"; }
};

/// What the costs in the list are computed with.
constexpr double kStepMilliseconds = 3.1;  ///< ResNet18, batch 128, bfloat16, graph, H200
constexpr std::int64_t kStepsPerEpoch = 390;

/// Throws keel::Error with the file, the line and what is wrong with it.
Recipe read_recipe(const std::filesystem::path& file);

/// All of a folder's, in their order.
std::vector<Recipe> read_recipes(const std::filesystem::path& folder);

/// Options of keel train: the recipe's common ones, then the schedule's, then `given`.
Json common_options(const Recipe& recipe, const std::string& schedule, const Json& given);
/// `given` (what the command line says) wins over the cell.
TrainOptions cell_options(const Recipe& recipe, const Cell& cell, const std::string& schedule,
                          const Json& given);

/// "45 trials of 6 epochs, about 5.5 GPU minutes".
std::string cost(const Recipe& recipe, const std::string& schedule);

}  // namespace keel::lab::reproduce
