#pragma once

#include "lab/data/data_set.h"
#include "lab/reproduce/results.h"

namespace keel::lab::reproduce {

/// One training: what is recorded of it, and where it ran.
struct TrialOutcome {
  Trial trial;
  Data data;
  std::string device;
};

/// That another process trains in the folder.
std::string in_use(const std::filesystem::path& run);

/// Loads the data and trains, in this process. With options.run a run folder is written, and a run
/// that is in it already goes on; a trial that was interrupted has that status. Throws keel::Error where
/// another process trains in that folder. Where the data are not
/// those `expected`, nothing is trained: the outcome says which they are.
TrialOutcome run_trial(const std::string& cell, TrainOptions options,
                       const std::optional<Data>& expected = {});

Json to_json(const TrialOutcome& outcome);
TrialOutcome outcome_of(const Json& json);

Data description_of(const DataSet& data);

}  // namespace keel::lab::reproduce
