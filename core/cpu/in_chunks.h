#pragma once

#include <algorithm>
#include <cstdint>

#include "keel/executor.h"

namespace keel::cpu {

/// Calls body(first, last) for chunks that cover the batch. They are long enough that small
/// matrices share the cost of a call and a scratch allocation, and short enough that small batches
/// use all threads.
template <typename Body>
void in_chunks(std::int64_t batch, std::int64_t n, const Executor& executor, const Body& body) {
  const std::int64_t chunk = std::max<std::int64_t>(1, 8192 / (n * n * n + 64));
  executor((batch + chunk - 1) / chunk,
           [&](std::int64_t index) { body(index * chunk, std::min(batch, (index + 1) * chunk)); });
}

}  // namespace keel::cpu
