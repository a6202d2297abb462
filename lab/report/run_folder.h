#pragma once

// The files of a run folder, without LibTorch. metrics.jsonl has one JSON object per line, each with a "kind" ("start",
// "step", "epoch", "failure", "message"). Non-finite numbers are null.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lab/storage/files.h"
#include "lab/train/records.h"

namespace keel::lab::report {

using Json = nlohmann::ordered_json;
/// Receives one sentence for each thing that was left out.
using Say = std::function<void(const std::string&)>;

class MetricsWriter {
 public:
  /// Appends to `path`. First removes unreadable lines (see read_metrics) and lines of steps after `last_step`, which a
  /// resumed run repeats. A negative `last_step` starts a new file. Throws std::system_error if that cannot be written:
  /// records behind a partial line would make the file unreadable.
  explicit MetricsWriter(const std::filesystem::path& path, std::int64_t last_step = -1,
                         const Say& say = {});

  /// Writes one line and flushes it to the system before returning.
  void write(const Json& record);

  /// The errno of the first write that failed, e.g. on a full disk; 0 if none did. Later lines are dropped.
  int error() const { return file_.error(); }

 private:
  LogFile file_;
};

/// The records of a file in order. Lines that are not JSON objects are skipped and reported to `say` with file and
/// line, except the last one, which a killed process may have cut off. Throws keel::Error if the file cannot be read.
std::vector<Json> read_metrics(const std::filesystem::path& path, const Say& say = {});

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
  double seconds = kNotDone;  ///< all epochs together
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
