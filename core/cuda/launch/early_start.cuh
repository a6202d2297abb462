#pragma once

// Programmatic dependent launch: a kernel may start while the previous one on the stream is still
// running, and waits inside. Two rules make this safe:
//   - Before await_previous() a kernel writes nothing to global memory. It reads only what its caller
//     knows to be older than the previous kernel.
//   - let_next_start() comes after await_previous(), or in a kernel that is launched without
//     Launch::early and so starts when all others have finished. So when a kernel starts, all kernels
//     but the previous one have finished.

namespace keel::cuda {

__device__ __forceinline__ void await_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace keel::cuda
