#pragma once

// Programmatic dependent launch: a kernel may start while the previous one on the stream is still
// running, and waits inside. Two rules make this safe:
//   - Before await_previous() a kernel writes nothing to global memory. It reads only what its caller
//     knows to be older than the previous kernel.
//   - let_next_start() comes after await_previous(), or in a kernel that is launched without
//     launch_early and so starts when all others have finished. So when a kernel starts, all kernels
//     but the previous one have finished.

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

/// Launches a kernel that calls await_previous() before it breaks the first rule, in clusters of
/// `cluster` blocks.
template <typename... Parameters>
cudaError_t launch_early_in_clusters(unsigned cluster, void (*kernel)(Parameters...), dim3 blocks,
                                     dim3 threads, int bytes, cudaStream_t stream,
                                     const std::type_identity_t<Parameters>&... arguments) {
  constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t launch{};
  launch.gridDim = blocks;
  launch.blockDim = threads;
  launch.dynamicSmemBytes = std::size_t(bytes);
  launch.stream = stream;
  launch.attrs = attributes;
  if (kArchitectures[0] >= 900) {
    cudaLaunchAttribute& early = attributes[launch.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& together = attributes[launch.numAttrs++];
    together.id = cudaLaunchAttributeClusterDimension;
    together.val.clusterDim = {cluster, 1, 1};
  }
  return cudaLaunchKernelEx(&launch, kernel, arguments...);
}

/// The same without clusters.
template <typename... Parameters>
cudaError_t launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, int bytes,
                         cudaStream_t stream,
                         const std::type_identity_t<Parameters>&... arguments) {
  return launch_early_in_clusters(1, kernel, blocks, threads, bytes, stream, arguments...);
}

}  // namespace keel::cuda
