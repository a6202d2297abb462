#pragma once

#include "cuda/copies.cuh"
#include "cuda/pack.cuh"

namespace keel::cuda {

/// The block's dynamic shared memory.
__device__ __forceinline__ unsigned char* shared_memory() {
  extern __shared__ __align__(16) unsigned char wide_memory[];
  return wide_memory;
}

}  // namespace keel::cuda
