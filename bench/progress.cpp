#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "add.h"

namespace keel::bench {

// Repetitions take turns, so Google Benchmark reports nothing before the very end.
void show_progress(const std::string& name) {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point start = Clock::now();
  static Clock::time_point last = start - std::chrono::minutes(1);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto now = Clock::now();
  if (now - last < (terminal ? std::chrono::milliseconds(100) : std::chrono::seconds(10))) return;
  last = now;
  const std::string line = fmt::format(
      "{:>4} s  {}", std::chrono::duration_cast<std::chrono::seconds>(now - start).count(), name);
  if (terminal)
    fmt::print(stderr, "\r{:<78}", line.substr(0, 78));
  else
    fmt::print(stderr, "{}\n", line);
}

}  // namespace keel::bench
