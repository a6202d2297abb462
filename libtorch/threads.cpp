#include "keel/torch/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

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
