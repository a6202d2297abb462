#pragma once

#include <array>
#include <csignal>

namespace keel::lab {

/// Scope in which SIGINT, SIGTERM, SIGHUP (the terminal is gone) and SIGPIPE (whoever read our output is gone) are
/// recorded as a request to stop. With `once`, a second signal of the same kind ends the process, but not a second
/// SIGPIPE: what is still said goes nowhere, also after the scope. Ignored signals stay ignored. At most one per process.
class StopOnSignal {
 public:
  explicit StopOnSignal(bool once = true);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  bool requested() const;

 private:
  static constexpr std::array<int, 4> kSignals{SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace keel::lab
