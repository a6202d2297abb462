#pragma once

#include <cstdint>
#include <functional>

namespace keel {

/// How the CPU stages spread their work: call `body(i)` once for every i in [0, count), on any
/// threads and in any order, and return when all are done. No result depends on how it is done, not even
/// in the last bit. The LibTorch adapter passes LibTorch's own thread pool.
using Executor =
    std::function<void(std::int64_t count, const std::function<void(std::int64_t)>& body)>;

/// Everything on the calling thread.
Executor serial();

/// `threads` threads started for each call; 0 means one per core. For programs without a pool.
Executor threads(int threads = 0);

}  // namespace keel
