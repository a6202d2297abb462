#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace keel::lab::reproduce {

/// Another process of a program. One that still runs when this is gone is ended with it.
class Child {
 public:
  /// Everything it prints goes to `log`. Throws std::system_error.
  Child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
        const std::filesystem::path& log);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Its exit code, or 128 and the number of the signal that ended it; empty while it runs.
  std::optional<int> ended();
  /// Asks it to end.
  void stop();

 private:
  pid_t process_ = -1;
  std::optional<int> code_;
};

/// The program that runs now.
std::filesystem::path this_program();

}  // namespace keel::lab::reproduce
