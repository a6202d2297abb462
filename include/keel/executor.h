#pragma once

#include <cstdint>
#include <functional>

namespace keel {

/// How the CPU stages distribute their work. An executor calls `body(i)` once for every i in [0,
/// count), on any threads and in any order, and returns when all calls have finished. Results do
/// not depend on the executor, not even in the last bit. The LibTorch adapter passes LibTorch's own
/// thread pool.
using Executor =
    std::function<void(std::int64_t count, const std::function<void(std::int64_t)>& body)>;

/// Runs everything on the calling thread.
Executor serial();

/// Starts `threads` threads for each call; 0 means one per core. For programs without a thread
/// pool.
Executor threads(int threads = 0);

}  // namespace keel
