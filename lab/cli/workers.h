#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/train/options.h"

namespace keel::cli {

/// Starts that many workers on this machine, each running `keel train` with these arguments (without --workers) and
/// torchrun's environment variables, and waits for all of them. Rank 0 shares this process's output. The other ranks'
/// errors are printed with their rank in front, and their other output is dropped. If one worker fails, the others get a
/// moment to report it and are then ended.
///
/// Returns rank 0's exit code, or if that is 0 the first other nonzero one; kProcesses for a worker that was killed.
/// SIGINT and SIGTERM are passed on as SIGTERM. A worker that is still running shortly after options.timeout is killed.
int train_with_workers(const std::vector<std::string>& arguments, std::int64_t workers,
                       const lab::TrainOptions& options);

}  // namespace keel::cli
