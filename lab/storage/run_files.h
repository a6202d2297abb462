#pragma once

// Names of files in a run folder. docs/lab.md describes each.

namespace keel::lab::run_files {

inline constexpr const char* kConfig = "config.toml";
inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kResult = "result.json";
inline constexpr const char* kSpectrum = "spectrum.json";
inline constexpr const char* kCheckpoints = "checkpoints";  ///< a folder

}  // namespace keel::lab::run_files
