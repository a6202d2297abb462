#pragma once

// The gradient of a ReLU whose output is used twice, on raw pointers. One launch, and the host never waits.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace keel::lab::cuda {

/// dL_dinput = through + past where output is > 0 or NaN, otherwise 0. All are dense and in the same order.
struct ForkBackward {
  bool bfloat16 = true;  ///< otherwise float32
  std::int64_t count = 0;
  const void* through = nullptr;
  const void* past = nullptr;  ///< may be null
  const void* output = nullptr;
  void* dL_dinput = nullptr;
};
cudaError_t fork_backward(const ForkBackward& task, cudaStream_t stream);

}  // namespace keel::lab::cuda
