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

extern "C" struct keel_signals {
  int (*enter)();  ///< PyGILState_Ensure
  int (*check)();  ///< PyErr_CheckSignals: not 0 if a handler raised an exception
  void (*fetch)(void**, void**, void**);  ///< PyErr_Fetch
  void (*leave)(int);                     ///< PyGILState_Release
  double seconds;                         ///< between two looks
  void* exception[3];                     ///< what a handler raised
};

namespace {

using Clock = std::chrono::steady_clock;

thread_local keel_signals* wanted = nullptr;
thread_local Clock::time_point last_look;

}  // namespace

/// Makes this thread look for signals in the calls that follow; null ends it. Returns what was there before.
extern "C" C10_EXPORT keel_signals* keel_look_for_signals(keel_signals* signals) {
  last_look = Clock::now();
  return std::exchange(wanted, signals);
}

namespace keel::ops {

void stop_if_interrupted() {
  if (wanted == nullptr) return;
  const auto now = Clock::now();
  if (now - last_look < std::chrono::duration<double>(wanted->seconds)) return;
  last_look = now;
  keel_signals* const signals = wanted;  // a handler may call this library
  const int state = signals->enter();
  const bool raised = signals->check() != 0;
  if (raised)
    signals->fetch(&signals->exception[0], &signals->exception[1], &signals->exception[2]);
  signals->leave(state);
  TORCH_CHECK(!raised, "keel: interrupted");
}

}  // namespace keel::ops
