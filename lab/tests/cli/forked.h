#pragma once

// Runs the program without its start-up time: half a second, nearly all of it LibTorch's. The calling process has
// already started LibTorch, and a fork of it does everything that main() does.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lab/cli/command_line.h"

namespace keel::cli::testing {

/// Returns the command's status as of waitpid(), or -1 if it could not be waited for. Its output goes to the files.
inline int run_in_a_fork(const std::vector<std::string>& words, const std::string& out,
                         const std::string& error) {
  std::fflush(nullptr);  // the child must not print our buffered output
  const pid_t child = ::fork();
  if (child == 0) {
    const auto open = [](int number, const std::string& file, int how) {
      const int opened = ::open(file.c_str(), how, 0600);
      if (opened < 0 || ::dup2(opened, number) < 0) ::_exit(127);
      ::close(opened);
    };
    open(0, "/dev/null", O_RDONLY);
    open(1, out, O_WRONLY | O_CREAT);
    open(2, error, O_WRONLY | O_CREAT);
    std::exit(run_command_line(words));
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child ? status : -1;
}

}  // namespace keel::cli::testing
