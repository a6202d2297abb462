#include "torch_threads.h"

#include <ATen/Parallel.h>

namespace keel::bench {

void on_torch_threads(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  at::parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace keel::bench
