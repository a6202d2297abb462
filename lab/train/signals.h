#pragma once

#include <array>
#include <csignal>

namespace keel::lab {

/// Scope in which SIGINT and SIGTERM are recorded as a request to stop. With `once`, a second signal of the same kind ends
/// the process. Ignored signals stay ignored. At most one per process.
class StopOnSignal {
 public:
  explicit StopOnSignal(bool once = true);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  bool requested() const;

 private:
  static constexpr std::array<int, 2> kSignals{SIGINT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace keel::lab
