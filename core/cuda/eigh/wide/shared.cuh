#pragma once

// A block's shared memory, and copies into it that go on while the block works.

#include "cuda/pack.cuh"

namespace keel::cuda {

#ifdef __CUDACC__
/// As much as the block was launched with.
__device__ __forceinline__ unsigned char* shared_memory() {
  extern __shared__ __align__(16) unsigned char wide_memory[];
  return wide_memory;
}

/// 16 bytes from global memory.
__device__ __forceinline__ void copy_behind(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
}
/// What this thread copied since the last call is a lot of its own.
__device__ __forceinline__ void end_lot() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// All of this thread's lots but the last COUNT are there.
template <int COUNT>
__device__ __forceinline__ void await_lots() {
  asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}
#endif

}  // namespace keel::cuda
