#pragma once

#include <ATen/Parallel.h>

#include "keel/executor.h"

#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "at::parallel_for is compiled here: without OpenMP it would silently use one thread"
#endif

namespace keel::ops {

/// LibTorch's own threads, so that keel obeys at::set_num_threads and adds no pool of its own.
inline Executor libtorch_threads() {
  return [](std::int64_t count, const std::function<void(std::int64_t)>& body) {
    at::parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(i);
    });
  };
}

}  // namespace keel::ops
