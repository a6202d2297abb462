#pragma once

// Conversion between stored elements and the type in which they are summed.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

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

/// -0, the neutral element of addition: 0 would turn -0 into 0.
template <typename T>
__device__ T negative_zero() {
  if constexpr (sizeof(T) == 2)
    return {0x8000};
  else
    return -T(0);
}

/// Whether a gate is open. NaN is.
template <typename T>
__device__ bool is_open(T gate) {
  return !(widened(gate) <= 0);
}

/// The same for two 16-bit gates in a word: the bits of an open gate's half are set.
template <typename T>
__device__ unsigned open_halves(unsigned gates) {
  static_assert(sizeof(T) == 2);
  using Two = std::conditional_t<std::is_same_v<T, Half>, __half2, __nv_bfloat162>;
  const unsigned zeros = 0;
  return __hgtu2_mask(reinterpret_cast<const Two&>(gates), reinterpret_cast<const Two&>(zeros));
}

}  // namespace keel::cuda
