#pragma once

// The names of what a run folder holds. docs/lab.md says what is in each.

namespace keel::lab::run_files {

inline constexpr const char* kConfig = "config.toml";
inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kResult = "result.json";
inline constexpr const char* kSpectrum = "spectrum.json";
inline constexpr const char* kCheckpoints = "checkpoints";  ///< a folder
inline constexpr const char* kEvents =
    "events.out.tfevents.";  ///< TensorBoard's: what their names begin with

}  // namespace keel::lab::run_files
