#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/train/options.h"

namespace keel::cli {

/// Starts `keel train` with these arguments (less --workers) as many times on this machine, each with
/// torchrun's variables, and waits for all. Process 0's output is this process's own; the others' errors
/// come with their process in front, and their other output is dropped. Where one ends badly, the rest are
/// given a moment to say what they saw of it, and then ended.
///
/// Returns process 0's exit code, or that of the first that has one where process 0's is 0; kProcesses for
/// one that was killed. SIGINT and SIGTERM are passed on as SIGTERM; a worker that has not ended a
/// moment after options.timeout is killed.
int train_with_workers(const std::vector<std::string>& arguments, std::int64_t workers,
                       const lab::TrainOptions& options);

}  // namespace keel::cli
