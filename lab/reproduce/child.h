#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
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

/// A file in memory, which a child reads or writes. It is gone with the last process that has it, however they end.
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

/// A child process that runs this program. It ends with this process, and the destructor ends it if it still runs.
class Child {
 public:
  /// Its standard input is a file that begins with `input`. Throws std::system_error.
  Child(const std::vector<std::string>& arguments, std::string_view input) : input_(input) {
    std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ < 0)
      throw std::system_error(errno, std::generic_category(), "cannot start " + words[0]);
    if (process_ > 0) return;
    // Only what a child of a process with threads may call. A parent that is gone by now would send no signal.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent && ::dup2(input_.descriptor(), 0) == 0 &&
        ::dup2(log_.descriptor(), 1) == 1 && ::dup2(1, 2) == 2)
      ::execv(pointers[0], pointers.data());
    ::_exit(127);
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
  std::string log() const { return log_.text(); }  ///< what it printed
  /// Asks it to end.
  void stop() {
    if (!ended()) ::kill(process_, SIGTERM);
  }

 private:
  const MemoryFile input_, log_;
  pid_t process_ = -1;
  std::optional<int> code_;
};

}  // namespace keel::lab::reproduce
