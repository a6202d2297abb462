#pragma once

// metrics.jsonl: one JSON object a line, each with a "kind" ("start", "step", "epoch", "failure",
// "message"). Numbers that are not finite are null.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace keel::lab::report {

using Json = nlohmann::ordered_json;

class MetricsWriter {
 public:
  /// Appends to `path`. Lines of steps after `last_step`, which a resumed run repeats, and a line cut
  /// off by a kill go first; `last_step` < 0 starts afresh.
  explicit MetricsWriter(const std::filesystem::path& path, std::int64_t last_step = -1);

  /// One line, on disk (or in the system's hands) when this returns.
  void write(const Json& record);

  /// False once a write has failed (a full disk): what follows is dropped.
  bool healthy() const { return bool(file_); }

 private:
  std::ofstream file_;
};

/// The records of a file in their order. The last line may be cut off: it is left out. Any other line
/// that is no JSON object throws keel::Error naming file and line.
std::vector<Json> read_metrics(const std::filesystem::path& path);

}  // namespace keel::lab::report
