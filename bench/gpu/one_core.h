#pragma once

#include <sched.h>

namespace keel::bench {

/// All threads of this process on one core while it lives. LibTorch hands a backward pass to the device's thread
/// and waits: from core to core that takes about 50 us of waking up, and differs from host to host. On one core
/// it is a switch of a few.
class OnOneCore {
 public:
  OnOneCore();
  ~OnOneCore();
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

 private:
  cpu_set_t before_;
};

}  // namespace keel::bench
