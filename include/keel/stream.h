#pragma once

#include <cstddef>
#include <functional>

namespace keel {

/// Where a CUDA stage queues its work and takes scratch memory from. Untyped, so that programs without
/// CUDA can include the stages' headers.
struct Stream {
  void* handle = nullptr;  ///< a cudaStream_t, or null for the default stream

  /// Device memory that only work on this stream will touch, and its return once all of that is queued
  /// (queued, not done). Empty means cudaMallocAsync and cudaFreeAsync.
  std::function<void*(std::size_t bytes)> allocate = {};
  std::function<void(void* memory)> release = {};
};

}  // namespace keel
