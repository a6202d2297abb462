#pragma once

// Reads a run folder without LibTorch.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace keel::lab::report {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct StepMetrics {
  std::int64_t step = 0;
  double loss = kUnknown, learning_rate = kUnknown;
  double gradient_norm = kUnknown;  ///< of the parameters before the layer under test
  double smallest_gap = kUnknown;   ///< between eigenvalues of the layer's covariance
  double rank = kUnknown;           ///< directions kept, smallest of all groups
  double images_per_second = kUnknown;
};

struct EpochMetrics {
  std::int64_t epoch = 0;  ///< from 0
  double train_error = kUnknown, test_error = kUnknown, seconds = kUnknown;
  double recalibrated_test_error = kUnknown;  ///< with recomputed running statistics
};

struct FailureMetrics {
  std::int64_t step = 0;
  std::string what;
};

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
  std::string status;  ///< finished, failed, interrupted, or unfinished (running, or killed)
  std::vector<StepMetrics> steps;
  std::vector<EpochMetrics> epochs;
  std::optional<FailureMetrics> failure;
  double test_error = kUnknown, recalibrated_test_error = kUnknown;
  double images_per_second = kUnknown;
  double seconds = kUnknown;   ///< all epochs together
  double peak_mib = kUnknown;  ///< peak GPU memory in training
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
