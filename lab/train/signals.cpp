#include "lab/train/signals.h"

#include <atomic>

namespace keel::lab {
namespace {

std::atomic<bool> stop_requested{false}, pipe_broke{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

extern "C" void keel_lab_request_stop(int number) {
  stop_requested.store(true);
  if (number == SIGPIPE) pipe_broke.store(true);
}

}  // namespace

StopOnSignal::StopOnSignal(bool once) {
  stop_requested = pipe_broke = false;
  struct sigaction action {};
  action.sa_handler = keel_lab_request_stop;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    // After SA_RESETHAND a second signal has its default action.
    action.sa_flags = once && kSignals[i] != SIGPIPE ? SA_RESETHAND | SA_RESTART : SA_RESTART;
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopOnSignal::~StopOnSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  if (pipe_broke) std::signal(SIGPIPE, SIG_IGN);
}

bool StopOnSignal::requested() const { return stop_requested.load(); }

}  // namespace keel::lab
