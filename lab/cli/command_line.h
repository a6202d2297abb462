#pragma once

#include <string>
#include <vector>

namespace keel::cli {

/// All of the program `keel`: runs the command that the words name and returns the exit code. What is thrown is told.
int run_command_line(const std::vector<std::string>& words);

}  // namespace keel::cli
