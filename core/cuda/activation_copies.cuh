#pragma once

// Copies into shared memory that need no registers on the way. What a thread has copied itself it may
// read after await_copies, without a barrier.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace keel::cuda {

/// BYTES are 4, 8 or 16; both addresses are multiples of them.
template <int BYTES>
__device__ inline void copy_async(void* to_shared, const void* from) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(to_shared));
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES)
                 : "memory");
}

__device__ inline void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace keel::cuda
