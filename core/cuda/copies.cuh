#pragma once

// Asynchronous copies into shared memory (cp.async). A thread may read what it copied itself after
// await_copies, without a barrier.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace keel::cuda {

/// BYTES is 4, 8 or 16. Both addresses must be multiples of it.
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

/// Commits a thread's copies since the last call as one group, which may be empty.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits for all committed groups but the last OPEN.
template <int OPEN>
__device__ inline void await_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory");
}

/// A barrier for some warps of a block: those that pass the same number, from 1 to 15.
template <int WARPS>
__device__ inline void sync_team(int number) {
  if constexpr (WARPS == 1)
    __syncwarp();
  else
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(WARPS * 32) : "memory");
}

}  // namespace keel::cuda
