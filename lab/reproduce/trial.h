#pragma once

#include "lab/data/data_set.h"
#include "lab/reproduce/results.h"

namespace keel::lab::reproduce {

/// One training: its record, and where it ran.
struct TrialOutcome {
  Trial trial;
  Data data;
  std::string device;
};

/// The message that another process trains in the folder.
std::string in_use(const std::filesystem::path& run);

/// Loads the data and trains in this process. With options.run it writes a run folder, or resumes the run in it. An
/// interrupted trial has that status. Throws keel::Error if another process trains in that folder. If the data are
/// not the `expected` ones, it does not train, and the outcome names the data.
TrialOutcome run_trial(const std::string& cell, TrainOptions options,
                       const std::optional<Data>& expected = {});

Json to_json(const TrialOutcome& outcome);
TrialOutcome outcome_of(const Json& json);

Data description_of(const DataSet& data);

}  // namespace keel::lab::reproduce
