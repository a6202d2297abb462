#pragma once

// Reads a run folder without LibTorch.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lab/train/records.h"

namespace keel::lab::report {

constexpr double kUnknown = kNotDone;

/// The spectrum of one group of channels.
struct GroupSpectrum {
  std::vector<double> values;                   ///< descending
  std::vector<std::vector<double>> covariance;  ///< may be empty
};

/// The spectra of one layer under test.
struct LayerSpectrum {
  std::string name;  ///< in the network, e.g. bn1
  std::vector<GroupSpectrum> groups;
};

struct Run {
  std::filesystem::path folder;
  std::vector<std::pair<std::string, std::string>> settings;  ///< of config.toml, in file order
  Result result;  ///< so far; its status is `unfinished` if the run goes on, or was killed
  std::vector<StepRecord> steps;
  std::vector<EpochRecord> epochs;
  double seconds = kUnknown;  ///< all epochs together
  std::string device;
  std::vector<LayerSpectrum> spectra;  ///< of layers that have one
  std::vector<std::string> notes;      ///< what could not be read, one sentence each

  /// The value of that setting, or an empty text.
  std::string setting(const std::string& name) const;
};

/// Throws keel::Error that names the file if the folder is not a run folder or a file in it is damaged. Leaves out
/// what a killed run had no time to write. Also skips damaged lines of metrics.jsonl, with a note.
Run read_run(const std::filesystem::path& folder);

}  // namespace keel::lab::report
