#include "keel/torch/threads.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "device.h"

namespace keel {

int use_all_cores(int threads) {
  if (threads <= 0) {
    // May be a list with one number per nesting level. The first one counts.
    const char* const asked = std::getenv("OMP_NUM_THREADS");
    threads = asked ? std::atoi(asked) : 0;
  }
  if (threads <= 0) threads = int(std::max(1u, std::thread::hardware_concurrency()));
  at::set_num_threads(threads);
  return threads;
}

}  // namespace keel

// This library does not know Python: python/keel/_interrupt.py hands over the functions to call.

namespace keel::ops {

extern "C" struct keel_signals {
  int (*enter)();  ///< PyGILState_Ensure
  int (*check)();  ///< PyErr_CheckSignals: not 0 if a handler raised an exception
  void (*fetch)(void**, void**, void**);  ///< PyErr_Fetch
  void (*leave)(int);                     ///< PyGILState_Release
  double seconds;                         ///< between two looks
  void* exception[3];                     ///< what a handler raised
};

namespace {

using SignalClock = std::chrono::steady_clock;

thread_local keel_signals* signals_to_look_for = nullptr;
thread_local SignalClock::time_point last_look;

}  // namespace

/// Makes this thread look for signals in the calls that follow; null ends it. Returns what was there before.
extern "C" C10_EXPORT keel_signals* keel_look_for_signals(keel_signals* signals) {
  last_look = SignalClock::now();
  return std::exchange(signals_to_look_for, signals);
}

void stop_if_interrupted() {
  keel_signals* const signals = signals_to_look_for;  // a handler may call this library
  if (signals == nullptr) return;
  const auto now = SignalClock::now();
  if (now - last_look < std::chrono::duration<double>(signals->seconds)) return;
  last_look = now;
  const int state = signals->enter();
  const bool raised = signals->check() != 0;
  if (raised)
    signals->fetch(&signals->exception[0], &signals->exception[1], &signals->exception[2]);
  signals->leave(state);
  TORCH_CHECK(!raised, "keel: interrupted");
}

}  // namespace keel::ops
