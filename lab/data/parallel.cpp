#include "lab/data/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace keel::lab {
namespace {

struct Work {
  Work(std::int64_t n, const std::function<void(std::int64_t)>& each) : count(n), body(each) {}

  const std::int64_t count;
  const std::function<void(std::int64_t)>& body;
  std::atomic<std::int64_t> next{0}, done{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::condition_variable finished;
  std::size_t running = 0;
  std::int64_t first_failure = std::numeric_limits<std::int64_t>::max();
  std::exception_ptr error;

  // Indices are handed out in order and each started one is finished. So when one fails, all lower ones have run too.
  void run() {
    while (!failed) {
      const std::int64_t i = next++;
      if (i >= count) break;
      try {
        body(i);
        ++done;
      } catch (...) {
        failed = true;
        const std::lock_guard lock(mutex);
        if (i < first_failure) {
          first_failure = i;
          error = std::current_exception();
        }
      }
    }
    const std::lock_guard lock(mutex);
    if (--running == 0) finished.notify_all();
  }
};

}  // namespace

void in_parallel(const std::string& what, std::int64_t count,
                 const std::function<void(std::int64_t)>& body, const Progress& progress) {
  Work work(count, body);
  const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  work.running = std::size_t(std::max<std::int64_t>(1, std::min(cores, count)));
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0, n = work.running; i < n; ++i) threads.emplace_back([&] { work.run(); });
    std::unique_lock lock(work.mutex);
    while (!work.finished.wait_for(lock, std::chrono::milliseconds(50),
                                   [&] { return work.running == 0; })) {
      if (!progress) continue;
      lock.unlock();
      progress(what, work.done, count);
      lock.lock();
    }
  }
  if (work.error) std::rethrow_exception(work.error);
  if (progress) progress(what, count, count);
}

}  // namespace keel::lab
