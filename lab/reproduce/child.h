#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace keel::lab::reproduce {

/// A child process that runs this program. The destructor ends it if it is still running.
class Child {
 public:
  /// All its output goes to `log`. Throws std::system_error.
  Child(const std::vector<std::string>& arguments, const std::filesystem::path& log) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    std::vector<std::string> words{program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    const int error =
        posix_spawn(&process_, program.c_str(), &files, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0)
      throw std::system_error(error, std::generic_category(), "cannot start " + program);
  }
  ~Child() {
    if (ended()) return;
    ::kill(process_, SIGKILL);
    int status = 0;
    ::waitpid(process_, &status, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// The exit code, or 128 plus the signal that ended it. Empty while it runs.
  std::optional<int> ended() {
    int status = 0;
    if (!code_ && ::waitpid(process_, &status, WNOHANG) == process_)
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return code_;
  }
  /// Asks it to end.
  void stop() {
    if (!ended()) ::kill(process_, SIGTERM);
  }

 private:
  pid_t process_ = -1;
  std::optional<int> code_;
};

}  // namespace keel::lab::reproduce
