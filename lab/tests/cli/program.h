#pragma once

// Runs the program under test: through a shell, or in a fork of this process.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/cli/command_line.h"
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

/// The outcome of a command that wrote its output to files in a folder.
inline Outcome outcome_of(int status, const TemporaryFolder& folder) {
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(folder / "out"),
          read(folder / "error")};
}

/// Runs a shell script in which the program is "$keel". Quote it, because its path has a blank.
inline Outcome shell(const std::string& script) {
  const TemporaryFolder folder;
  const fs::path link = folder / "a blank" / "keel";
  fs::create_directory(link.parent_path());
  fs::create_symlink(KEEL_PROGRAM, link);
  write(folder / "script", "keel='" + link.string() + "'\n" + script + "\n");
  const std::string command = "bash " + (folder / "script").string() + " >" +
                              (folder / "out").string() + " 2>" + (folder / "error").string() +
                              " </dev/null";
  return outcome_of(std::system(command.c_str()), folder);
}

/// Runs the program itself. `before` has environment variables or a command that starts it, in shell syntax.
inline Outcome program(const std::string& arguments, const std::string& before = "") {
  return shell(before + " \"$keel\" " + arguments);
}

/// Splits arguments as a shell does.
inline std::vector<std::string> words_of(const std::string& arguments) {
  wordexp_t found;
  const int failed = ::wordexp(arguments.c_str(), &found, WRDE_NOCMD | WRDE_UNDEF);
  EXPECT_EQ(failed, 0) << arguments;
  if (failed) return {};
  std::vector<std::string> words(found.we_wordv, found.we_wordv + found.we_wordc);
  ::wordfree(&found);
  return words;
}

/// Runs the program in a fork of this process, without its start-up time: half a second, nearly all of it LibTorch's.
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

/// The same, for a command line.
inline Outcome keel(const std::string& arguments) {
  const TemporaryFolder folder;
  const int status = run_in_a_fork(words_of(arguments), folder / "out", folder / "error");
  EXPECT_NE(status, -1) << arguments;
  return outcome_of(status, folder);
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

/// Each path below a folder, with what it is, its inode and its content.
using Snapshot = std::map<std::string, std::string>;

inline Snapshot snapshot(const fs::path& folder) {
  Snapshot found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    struct stat about {};
    EXPECT_EQ(::lstat(entry.path().c_str(), &about), 0);
    std::string what = std::to_string(about.st_ino) + " ";
    if (entry.is_symlink())
      what += "link to " + fs::read_symlink(entry.path()).string();
    else if (entry.is_directory())
      what += "folder";
    else
      what += read(entry.path());
    found.emplace(entry.path().string(), what);
  }
  return found;
}

/// A training that takes a second.
inline const std::string kTiny =
    " --model resnet_small --train-limit 64 --test-limit 20 --batch 16 --epochs 2 --log-every 2 "
    "--device cpu --threads 1 --no-augmentation ";

}  // namespace keel::cli::testing
