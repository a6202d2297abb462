#pragma once

// Programs in separate processes that can be stopped, killed and waited for with a limit.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "support/files.h"

extern char** environ;

namespace keel::test {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

class Program {
 public:
  using Environment = std::map<std::string, std::string>;

  /// Both outputs go to the file `log`. `set` is added to this process's environment.
  Program(std::vector<std::string> words, const Environment& set, fs::path log)
      : log_(std::move(log)) {
    std::vector<std::string> variables;
    for (char** one = environ; *one != nullptr; ++one)
      if (!set.count(std::string(*one).substr(0, std::string(*one).find('='))))
        variables.push_back(*one);
    for (const auto& [name, value] : set) variables.push_back(name + "=" + value);
    const auto pointers = [](std::vector<std::string>& all) {
      std::vector<char*> result;
      for (std::string& one : all) result.push_back(one.data());
      result.push_back(nullptr);
      return result;
    };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    const int error = posix_spawn(&process_, words[0].c_str(), &actions, nullptr,
                                  pointers(words).data(), pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("cannot start " + words[0]);
  }
  ~Program() {
    if (status_ != kRunning) return;
    send(SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  static constexpr int kRunning = -1;

  /// Its exit code, 128 plus the signal that ended it, or kRunning if it has not ended within the limit.
  int wait(Clock::duration limit = 120s) {
    for (const auto deadline = Clock::now() + limit; poll() == kRunning && Clock::now() < deadline;)
      std::this_thread::sleep_for(10ms);
    return status_;
  }
  int poll() {
    int status = 0;
    if (status_ == kRunning && waitpid(process_, &status, WNOHANG) == process_)
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return status_;
  }
  void send(int number) { kill(process_, number); }
  pid_t process() const { return process_; }

  std::string log() const { return testing::read_bytes(log_); }

 private:
  fs::path log_;
  pid_t process_ = -1;
  int status_ = kRunning;
};

}  // namespace keel::test
