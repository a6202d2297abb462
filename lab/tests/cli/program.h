#pragma once

// Runs the program under test as a shell would.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "lab/tests/report/run_files.h"

namespace keel::cli::testing {

using keel::lab::report::testing::read;
using keel::lab::report::testing::TemporaryFolder;
using keel::lab::report::testing::write;
namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string out, error;
};

/// A script for the shell, to which the program is known as $keel.
inline Outcome shell(const std::string& script) {
  const TemporaryFolder folder;
  write(folder / "script", "keel='" KEEL_PROGRAM "'\n" + script + "\n");
  const std::string command = "bash " + (folder / "script").string() + " >" +
                              (folder / "out").string() + " 2>" + (folder / "error").string() +
                              " </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(folder / "out"),
          read(folder / "error")};
}

/// `before`: variables of its environment, or a command that starts it, as a shell takes them.
inline Outcome keel(const std::string& arguments, const std::string& before = "") {
  return shell(before + " $keel " + arguments);
}

/// For scripts: waits until the run in the background (process $pid) has written its first step.
inline std::string wait_for_first_step(const fs::path& run) {
  return "while ! grep -qs '\"step\",' " + (run / "metrics.jsonl").string() +
         "; do sleep 0.05; kill -0 $pid || break; done\n";
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
