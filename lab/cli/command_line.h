#pragma once

#include <string>
#include <vector>

namespace keel::cli {

/// The whole program `keel`: runs the command, reports exceptions and returns the exit code.
int run_command_line(const std::vector<std::string>& words);

}  // namespace keel::cli
