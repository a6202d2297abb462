#pragma once

// Barriers of some of a block's threads, whole warps. ID is from 0, that of __syncthreads(), to 15.

namespace keel::cuda {

/// A barrier of COUNT threads.
template <int ID, int COUNT>
__device__ __forceinline__ void sync_some() {
  asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(COUNT) : "memory");
}

/// The same. Returns whether the flag is set in any of them.
template <int ID, int COUNT>
__device__ __forceinline__ bool sync_some_or(bool flag) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred own, all;\n"
      "setp.ne.s32 own, %1, 0;\n"
      "bar.red.or.pred all, %2, %3, own;\n"
      "selp.s32 %0, 1, 0, all;\n"
      "}"
      : "=r"(any)
      : "r"(int(flag)), "n"(ID), "n"(COUNT)
      : "memory");
  return any != 0;
}

/// A barrier of all threads. Some may wait here while others still use that of __syncthreads().
template <int ID>
__device__ __forceinline__ void sync_all() {
  asm volatile("bar.sync %0;" ::"n"(ID) : "memory");
}

}  // namespace keel::cuda
