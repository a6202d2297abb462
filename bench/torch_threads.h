#pragma once

#include <cstdint>
#include <functional>

namespace keel::bench {

/// An Executor (keel/executor.h): runs body(i) for every i in [0, count) on LibTorch's threads.
void on_torch_threads(std::int64_t count, const std::function<void(std::int64_t)>& body);

}  // namespace keel::bench
