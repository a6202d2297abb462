#pragma once

// Runs the program under test as a shell would.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "lab/report/run_files.h"

namespace keel::cli::testing {

using keel::lab::report::testing::read;
using keel::lab::report::testing::TemporaryFolder;
using keel::lab::report::testing::write;
namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string out, error;
};

/// `variables`: of its environment, as a shell takes them.
inline Outcome keel(const std::string& arguments, const std::string& variables = "") {
  const TemporaryFolder folder;
  const std::string command = variables + " '" KEEL_PROGRAM "' " + arguments + " >" +
                              (folder / "out").string() + " 2>" + (folder / "error").string() +
                              " </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(folder / "out"),
          read(folder / "error")};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline nlohmann::json json(const fs::path& file) { return nlohmann::json::parse(read(file)); }

/// A training that takes a second.
inline const std::string kTiny =
    " --model resnet_small --train-limit 64 --test-limit 20 --batch 16 --epochs 2 --log-every 2 "
    "--device cpu --threads 1 --no-augmentation ";

}  // namespace keel::cli::testing
