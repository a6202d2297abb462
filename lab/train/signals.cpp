#include "lab/train/signals.h"

#include <atomic>

namespace keel::lab {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

extern "C" void keel_lab_request_stop(int) { stop_requested.store(true); }

}  // namespace

StopOnSignal::StopOnSignal(bool once) {
  stop_requested = false;
  struct sigaction action {};
  action.sa_handler = keel_lab_request_stop;
  action.sa_flags = once ? SA_RESETHAND | SA_RESTART : SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopOnSignal::~StopOnSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool StopOnSignal::requested() const { return stop_requested.load(); }

}  // namespace keel::lab
