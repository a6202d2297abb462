// Runs the tests, or keel if the first argument is a keel command. So code that starts its own program again, such as
// the trials of `keel reproduce`, works from a fork of the tests. With the argument "forks" it runs many keel
// commands.

#include <gtest/gtest.h>

#include <iostream>

#include "lab/tests/cli/forked.h"

namespace keel::cli::testing {
namespace {

/// For tests in other languages that start the program many times (get_data.py). Each line of standard input is a
/// command, as fields that end with a tab: the files for stdout and stderr, and the arguments. Each line of output is
/// an exit code, or minus a signal.
int serve() {
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0, end; (end = line.find('\t', begin)) != std::string::npos;
         begin = end + 1)
      parts.push_back(line.substr(begin, end - begin));
    if (parts.size() < 2) return 2;
    const int status = run_in_a_fork({parts.begin() + 2, parts.end()}, parts[0], parts[1]);
    std::cout << (WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace keel::cli::testing

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{"forks"}) return keel::cli::testing::serve();
  if (!words.empty() && words[0][0] != '-') return keel::cli::run_command_line(words);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
