#include "lab/data/sources.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <mutex>

namespace keel::lab {

void in_parallel(const std::string& what, std::int64_t count,
                 const std::function<void(std::int64_t)>& body, const Progress& progress) {
  std::atomic<std::int64_t> next{0}, done{0}, first_failure{count};
  std::mutex mutex;
  std::exception_ptr error;
  // Indices are handed out in order. So when one fails, all lower ones run too, and only higher ones are skipped.
  const auto attempt = [&](std::int64_t i) {
    if (i > first_failure) return;
    try {
      body(i);
      ++done;
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (i > first_failure) return;
      first_failure = i;
      error = std::current_exception();
    }
  };
  const auto work = [&](std::int64_t, std::int64_t) {
    for (std::int64_t i; (i = next++) < count;) attempt(i);
  };
  // In LibTorch's threads, inside which its operators start no further ones.
  const auto all = std::async(std::launch::async, [&] {
    at::parallel_for(0, at::get_num_threads(), /*grain_size=*/1, work);
  });
  while (all.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready)
    if (progress) progress(what, done, count);
  if (error) std::rethrow_exception(error);
  if (progress) progress(what, count, count);
}

}  // namespace keel::lab
