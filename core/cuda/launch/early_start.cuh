#pragma once

// Programmatic dependent launch: a kernel may start while the previous one on the stream is still
// running, and waits inside. Two rules make this safe:
//   - Before await_previous() a kernel writes nothing to global memory. It reads only what its caller
//     knows to be older than the previous kernel.
//   - let_next_start() comes after await_previous(). So when a kernel starts, all kernels but the
//     previous one have finished.

#include <cuda_runtime.h>

#include <type_traits>

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

/// Launches a kernel that calls await_previous() before it breaks the first rule.
template <typename... Parameters>
cudaError_t launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, int bytes,
                         cudaStream_t stream,
                         const std::type_identity_t<Parameters>&... arguments) {
  constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = blocks;
  launch.blockDim = threads;
  launch.dynamicSmemBytes = std::size_t(bytes);
  launch.stream = stream;
  launch.attrs = &early;
  launch.numAttrs = kArchitectures[0] >= 900 ? 1 : 0;
  return cudaLaunchKernelEx(&launch, kernel, arguments...);
}

}  // namespace keel::cuda
