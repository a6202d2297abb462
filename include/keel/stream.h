#pragma once

#include <cstddef>
#include <functional>

namespace keel {

/// The stream on which a CUDA stage queues its work, and the allocator of its scratch memory.
/// Untyped, so that programs without CUDA can include the stages' headers.
struct Stream {
  void* handle = nullptr;  ///< a cudaStream_t, or null for the default stream

  /// Allocates device memory that only work on this stream will touch. `release` is called once all
  /// that work is queued (not necessarily finished). Empty means cudaMallocAsync and cudaFreeAsync.
  std::function<void*(std::size_t bytes)> allocate = {};
  std::function<void(void* memory)> release = {};
};

}  // namespace keel
