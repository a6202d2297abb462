#pragma once

#include <spawn.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace keel::lab::reproduce {

/// A file in memory, for what parent and child tell each other. It is gone with the last of them, however they end.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("keel", MFD_CLOEXEC)) { check(descriptor_ >= 0); }
  explicit MemoryFile(std::string_view text) : MemoryFile() {
    check(::write(descriptor_, text.data(), text.size()) == ssize_t(text.size()));
    ::lseek(descriptor_, 0, SEEK_SET);
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::string text() const {
    std::string all(std::size_t(std::max<off_t>(0, ::lseek(descriptor_, 0, SEEK_END))), '\0');
    check(::pread(descriptor_, all.data(), all.size(), 0) == ssize_t(all.size()));
    return all;
  }

 private:
  static void check(bool done) {
    if (!done) throw std::system_error(errno, std::generic_category(), "a file in memory");
  }
  int descriptor_;
};

/// A child process that runs this program. The destructor ends it if it is still running.
class Child {
 public:
  static constexpr int kAnswer = 3;  ///< the descriptor to which it writes its answer

  /// It reads `request` as its input. Throws std::system_error.
  Child(const std::vector<std::string>& arguments, std::string_view request) : request_(request) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    std::vector<std::string> words{program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, request_.descriptor(), 0);
    posix_spawn_file_actions_adddup2(&files, log_.descriptor(), 1);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    posix_spawn_file_actions_adddup2(&files, answer_.descriptor(), kAnswer);
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
  /// What it printed, and what it answered.
  std::string log() const { return log_.text(); }
  std::string answer() const { return answer_.text(); }
  /// Asks it to end.
  void stop() {
    if (!ended()) ::kill(process_, SIGTERM);
  }

 private:
  const MemoryFile request_, log_, answer_;
  pid_t process_ = -1;
  std::optional<int> code_;
};

}  // namespace keel::lab::reproduce
