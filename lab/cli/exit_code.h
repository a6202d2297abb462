#pragma once

namespace keel::cli {

/// What the program tells the shell. docs/lab.md lists them for users.
enum ExitCode : int {
  kDone = 0,
  kUnexpected = 1,  ///< an error of the program, the machine or LibTorch
  kUsage = 2,       ///< the command line or the config file is wrong
  kInput = 3,       ///< a data set, checkpoint, run folder or matrix cannot be used
  kDiverged = 4,    ///< training met a loss or gradient that is not finite, and stopped
  kInterrupted =
      5,  ///< told to stop; training goes on with --resume, a download with the same command
  kProcesses = 6,  ///< another process of the run is missing, hangs or was told something else
  kDownload = 7,   ///< a server or the network did not give the data; the same command goes on
};

}  // namespace keel::cli
