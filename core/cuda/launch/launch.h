#pragma once

// What a stage needs to start a kernel: temporary memory, the launch itself, and when the next kernel may start.

#include <cuda_runtime.h>

#include <type_traits>

#include "cuda/launch/card.h"

namespace keel::cuda {

/// Temporary device memory. It is released when the last kernel that uses it is queued.
template <typename T>
class Scratch {
 public:
  Scratch(const char* operation, const Stream& stream, std::int64_t count) : stream_(stream) {
    if (count == 0) return;
    const std::size_t bytes = std::size_t(count) * sizeof(T);
    if (stream.allocate) {
      data_ = static_cast<T*>(stream.allocate(bytes));
    } else {
      void* memory = nullptr;
      check(operation, cudaMallocAsync(&memory, bytes, native(stream)));
      data_ = static_cast<T*>(memory);
    }
  }
  ~Scratch() {
    if (data_ == nullptr) return;
    if (stream_.release)
      stream_.release(data_);
    else
      cudaFreeAsync(data_, native(stream_));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  operator T*() const { return data_; }

 private:
  const Stream& stream_;
  T* data_ = nullptr;
};

/// How a kernel is launched.
struct Launch {
  dim3 blocks, threads;
  std::int64_t bytes = 0;  ///< dynamic shared memory
  bool early = false;      ///< may start before the previous kernel ends: see await_previous()
  bool together = false;   ///< all blocks at once: they wait for each other
  int cluster = 1;         ///< blocks of a cluster
};

template <typename... Parameters>
void launch(const char* operation, void (*kernel)(Parameters...), const Launch& how,
            const Stream& stream, const std::type_identity_t<Parameters>&... arguments) {
  constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
  allow_shared_memory(operation, kernel, int(how.bytes));
  cudaLaunchAttribute attributes[3]{};
  cudaLaunchConfig_t config{};
  config.gridDim = how.blocks;
  config.blockDim = how.threads;
  config.dynamicSmemBytes = std::size_t(how.bytes);
  config.stream = native(stream);
  config.attrs = attributes;
  if (how.early && kArchitectures[0] >= 900) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (how.together) {
    cudaLaunchAttribute& together = attributes[config.numAttrs++];
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
  }
  if (how.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {unsigned(how.cluster), 1, 1};
  }
  check(operation, cudaLaunchKernelEx(&config, kernel, arguments...));
}

// --- Programmatic dependent launch: a kernel may start while the previous one on the stream is still running, and waits
// inside. Two rules make this safe:
//   - Before await_previous() a kernel writes nothing to global memory. It reads only what its caller knows to be older
//     than the previous kernel.
//   - let_next_start() comes after await_previous(), or in a kernel that is launched without Launch::early and so starts
//     when all others have finished. So when a kernel starts, all kernels but the previous one have finished.

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
