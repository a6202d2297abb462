#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace keel::lab::reproduce {

/// A child process. The destructor ends it if it is still running.
class Child {
 public:
  /// All its output goes to `log`. Throws std::system_error.
  Child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
        const std::filesystem::path& log);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// The exit code, or 128 plus the signal that ended it. Empty while it runs.
  std::optional<int> ended();
  /// Asks it to end.
  void stop();

 private:
  pid_t process_ = -1;
  std::optional<int> code_;
};

/// The path of this program.
std::filesystem::path this_program();

}  // namespace keel::lab::reproduce
