#pragma once

#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace keel::lab::reproduce {

/// A file without a name. It is gone with the last process that has it, however they end.
using NamelessFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
inline NamelessFile nameless_file(std::string_view text = "") {
  NamelessFile file(std::tmpfile(), std::fclose);
  if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0)
    throw std::system_error(errno, std::generic_category(), "a temporary file");
  return file;
}

/// A child process that runs this program. It ends with this process, and the destructor ends it if it still runs.
class Child {
 public:
  /// Its standard input is a file that begins with `input`. Throws std::system_error.
  Child(const std::vector<std::string>& arguments, std::string_view input)
      : input_(nameless_file(input)) {
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
    if (::getppid() == parent && ::dup2(::fileno(input_.get()), 0) == 0 &&
        ::dup2(::fileno(log_.get()), 1) == 1 && ::dup2(1, 2) == 2)
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
  /// What it printed.
  std::string log() const {
    std::rewind(log_.get());
    std::string text;
    for (int c; (c = std::getc(log_.get())) != EOF;) text += char(c);
    return text;
  }
  /// Asks it to end.
  void stop() {
    if (!ended()) ::kill(process_, SIGTERM);
  }

 private:
  const NamelessFile input_, log_ = nameless_file();
  pid_t process_ = -1;
  std::optional<int> code_;
};

}  // namespace keel::lab::reproduce
