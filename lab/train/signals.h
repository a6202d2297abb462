#pragma once

#include <array>
#include <csignal>

namespace keel::lab {

/// While it lives, the first SIGINT or SIGTERM is a request; a second one of its kind ends the
/// process. Signals that were ignored stay so. One at a time in a process.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  bool requested() const;

 private:
  static constexpr std::array<int, 2> kSignals{SIGINT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace keel::lab
