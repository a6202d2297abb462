#pragma once

// TensorBoard event files: TFRecord frames around protobuf messages. Both are encoded here directly, because only a version
// string and scalars are needed.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lab/storage/files.h"

namespace keel::lab::report {

/// CRC-32C (Castagnoli), which TFRecord stores masked.
std::uint32_t crc32c(const std::string& bytes);
std::uint32_t masked_crc32c(const std::string& bytes);

/// Seconds since 1970.
double unix_time();

class EventWriter {
 public:
  /// Creates events.out.tfevents.<seconds>.<host>.<process> in `folder`, and lists it there (own_files.h). With `first_step` > 0 it tells TensorBoard
  /// to drop the data of earlier files from that step on, because a resumed run repeats those steps.
  explicit EventWriter(const std::filesystem::path& folder, std::int64_t first_step = 0);

  void scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);

  /// The errno of the first write that failed, e.g. on a full disk; 0 if none did. Later events are dropped.
  int error() const { return file_.error(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  void record(const std::string& event);

  std::filesystem::path path_;
  LogFile file_;
};

}  // namespace keel::lab::report
