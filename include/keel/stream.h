#pragma once

namespace keel {

/// Where a CUDA stage queues its work: a cudaStream_t, or null for the default stream. Untyped, so that
/// programs without CUDA can include the stages' headers.
struct Stream {
  void* handle = nullptr;
};

}  // namespace keel
