#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "cuda/launch/card.h"
#include "cuda/launch/scratch.h"

namespace keel::cuda {

/// How a kernel is launched.
struct Launch {
  dim3 blocks, threads;
  std::int64_t bytes = 0;  ///< dynamic shared memory
  bool early = false;      ///< may start before the previous kernel ends: see early_start.cuh
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

}  // namespace keel::cuda
