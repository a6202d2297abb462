#include "keel/executor.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace keel {

Executor serial() {
  return [](std::int64_t count, const std::function<void(std::int64_t)>& body) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
  };
}

Executor threads(int threads) {
  if (threads <= 0) threads = int(std::max(1u, std::thread::hardware_concurrency()));
  return [threads](std::int64_t count, const std::function<void(std::int64_t)>& body) {
    std::atomic<std::int64_t> next{0};
    std::mutex guard;
    std::exception_ptr failure;
    const auto work = [&] {
      try {
        for (std::int64_t i; (i = next++) < count;) body(i);
      } catch (...) {
        const std::lock_guard lock(guard);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    };
    {
      std::vector<std::jthread> helpers;
      for (int t = 1; t < std::min<std::int64_t>(threads, count); ++t) helpers.emplace_back(work);
      work();
    }
    if (failure) std::rethrow_exception(failure);
  };
}

}  // namespace keel
