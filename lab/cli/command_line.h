#pragma once

#include <string>
#include <vector>

namespace keel::cli {

/// Exit codes. docs/lab.md lists them for users.
enum ExitCode : int {
  kDone = 0,
  kUnexpected = 1,   ///< an error of the program, the machine or LibTorch
  kUsage = 2,        ///< the command line or the config file is wrong, also for this machine
  kInput = 3,        ///< a data set, checkpoint, run folder or matrix cannot be used
  kDiverged = 4,     ///< training stopped at a non-finite loss or gradient
  kInterrupted = 5,  ///< continue training with --resume
  kProcesses = 6,    ///< another process of the run is missing or has different options
};

/// The whole program `keel`: runs the command, reports exceptions and returns the exit code.
int run_command_line(const std::vector<std::string>& words);

}  // namespace keel::cli
