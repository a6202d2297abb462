#pragma once

// Conversion between stored elements and the type in which they are summed.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/pack.cuh"
#include "keel/activations.h"

namespace keel::cuda {

__device__ inline float widened(float x) { return x; }
__device__ inline double widened(double x) { return x; }
__device__ inline float widened(Half x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline float widened(BFloat16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}

template <typename T>
__device__ T rounded(Accumulator<T> x) {
  return x;
}
template <>
__device__ inline Half rounded<Half>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}
template <>
__device__ inline BFloat16 rounded<BFloat16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

}  // namespace keel::cuda
