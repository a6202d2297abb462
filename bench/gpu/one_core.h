#pragma once

#include <sched.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace keel::bench {

/// All threads of this process on one core while it lives. LibTorch hands a backward pass to the device's thread
/// and waits: from core to core that takes about 50 us of waking up, and differs from host to host. On one core
/// it is a switch of a few.
class OnOneCore {
 public:
  OnOneCore() {
    check(sched_getaffinity(0, sizeof before_, &before_));
    const int here = sched_getcpu();
    if (here < 0) check(here);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(std::size_t(here), &one);
    keep_all_threads_on(one);
  }
  ~OnOneCore() {
    try {
      keep_all_threads_on(before_);
    } catch (const std::exception&) {
      // What follows runs on one core as well: another time, no wrong one.
    }
  }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

 private:
  static void check(int status) {
    if (status != 0)
      throw std::system_error(errno, std::generic_category(), "cannot choose the threads' cores");
  }
  /// All threads there are now; those started later take it from the thread that starts them.
  static void keep_all_threads_on(const cpu_set_t& cores) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      const auto thread = pid_t(std::stoi(task.path().filename().string()));
      const int status = sched_setaffinity(thread, sizeof cores, &cores);
      if (status != 0 && errno == ESRCH) continue;  // it has ended meanwhile
      check(status);
    }
  }

  cpu_set_t before_;
};

}  // namespace keel::bench
