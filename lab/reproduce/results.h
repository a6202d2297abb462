#pragma once

// Reads and writes lab/experiments/NAME/results.json: every trial, with its machine and software.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/data/data_set.h"
#include "lab/reproduce/recipe.h"
#include "lab/storage/json.h"
#include "lab/train/records.h"

namespace keel::lab::reproduce {

/// One call of the program on one machine.
struct Origin {
  std::string date, command;
  std::string tree;  ///< git describe
  std::string keel, libtorch, cuda;
  std::string device;  ///< the GPU, or "cpu"
  std::string processor;
  std::int64_t cores = 0;

  /// Whether all but the date is the same.
  bool same_as(Origin other) const {
    other.date = date;
    return *this == other;
  }
  bool operator==(const Origin&) const = default;
};

/// LibTorch's CUDA version ("11.8"), or an empty string without CUDA.
std::string cuda_version();

/// The machine and software of this process. The caller names the `device` that it uses.
Origin this_origin(const std::string& command, const std::string& device = "cpu");

struct Data {
  std::string name;
  std::int64_t classes = 0, train = 0, test = 0;

  bool operator==(const Data&) const = default;
  std::string text() const;
};
Data description_of(const DataSet& data);

struct Trial {
  std::string cell;
  std::uint64_t seed = 0;
  Result result = {};  ///< finished or failed; its test errors are those of a finished run
  std::int64_t origin = 0;
  /// Mean loss and largest gradient norm of the parameters before the layer, between the previous and this entry of
  /// `at`.
  std::vector<double> at = {}, loss = {}, gradient = {};
  /// After all epochs, or evenly spaced ones up to the last.
  std::vector<double> test_errors = {}, recalibrated_errors = {}, followed_errors = {};
};

struct Results {
  std::string experiment, schedule;
  Json options = Json::object();  ///< common to the cells, without machine-specific ones
  Json cells = Json::object();    ///< options of each cell that has trials
  std::optional<Data> data = std::nullopt;
  std::vector<Origin> origins = {};
  std::vector<Trial> trials = {};
  Json measured = {};  ///< figures of a measurement

  bool empty() const { return trials.empty() && measured.is_null(); }
  const Trial* find(const std::string& cell, std::uint64_t seed) const;
  std::vector<const Trial*> of(const Cell& cell) const;
  /// The origin's index in the list. Adds it if it is missing.
  std::int64_t place(const Origin& origin);
};

/// Returns empty results if there is no file.
Results read_results(const std::filesystem::path& file);
/// Writes atomically, one trial per line.
void write_results(const std::filesystem::path& file, const Results& results);

Json to_json(const Trial& trial);
Trial trial_of(const Json& json);
Json to_json(const Data& data);
Data data_of(const Json& json);

/// The options without those that may differ between machines and calls: paths, devices, threads, seeds, logging.
Json identity(const Json& options);

/// Throws keel::Error that names the difference if trials with `schedule` and these options do not belong to `results`.
void require_same(const Results& results, const Recipe& recipe, const std::string& schedule,
                  const Json& given);

/// The value with that many significant digits; null if not finite.
Json rounded(double value, int digits = 5);

}  // namespace keel::lab::reproduce
