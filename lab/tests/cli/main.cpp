// Runs the tests, or keel if the first argument is a keel command. So code that starts its own program again, such as
// the trials of `keel reproduce`, works from a fork of the tests.

#include <gtest/gtest.h>

#include "lab/cli/command_line.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words[0][0] != '-') return keel::cli::run_command_line(words);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
