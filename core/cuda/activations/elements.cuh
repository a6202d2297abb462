#pragma once

// Conversion between stored elements and the type in which they are summed.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/memory.cuh"
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

/// Four at a time. An instruction rounds two numbers to 16 bits and packs them.
template <typename T>
__device__ Pack<T> rounded_four(const float (&x)[4]) {
  return {rounded<T>(x[0]), rounded<T>(x[1]), rounded<T>(x[2]), rounded<T>(x[3])};
}
template <>
__device__ inline Pack<BFloat16> rounded_four<BFloat16>(const float (&x)[4]) {
  struct alignas(8) {
    __nv_bfloat162 pairs[2];
  } const both{{__floats2bfloat162_rn(x[0], x[1]), __floats2bfloat162_rn(x[2], x[3])}};
  return *reinterpret_cast<const Pack<BFloat16>*>(&both);
}

}  // namespace keel::cuda
