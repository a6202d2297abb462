#pragma once

// Neighbouring channels of a row, read, kept and written together.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace keel::lab::cuda {

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(__half x) { return __half2float(x); }
__device__ inline float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void narrow(float x, float& to) { to = x; }
__device__ inline void narrow(float x, __half& to) { to = __float2half_rn(x); }
__device__ inline void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

/// Neighbouring channels of a row, read and written at once: 16 bytes, or one number if V is 1. The 16 bytes stay
/// packed until their numbers are needed; unpacked, each 16-bit number would take a register.
template <typename T, int V>
struct Pack {
  uint4 words;
  /// The pack of that lane. All lanes of the warp must call it.
  __device__ Pack of_lane(int lane) const {
    const auto from = [lane](unsigned word) { return __shfl_sync(0xffffffffu, word, lane); };
    return {uint4{from(words.x), from(words.y), from(words.z), from(words.w)}};
  }
  __device__ void unpack(float (&to)[V]) const;
  __device__ static Pack of(const float (&from)[V]);
};
template <typename T>
struct Pack<T, 1> {
  T value;
  __device__ Pack of_lane(int lane) const { return {__shfl_sync(0xffffffffu, value, lane)}; }
  __device__ void unpack(float (&to)[1]) const { to[0] = widened(value); }
  __device__ static Pack of(const float (&from)[1]) {
    Pack result;
    narrow(from[0], result.value);
    return result;
  }
};

__device__ inline float2 halves(unsigned word, __half2*) {
  return __half22float2(*reinterpret_cast<__half2*>(&word));
}
__device__ inline float2 halves(unsigned word, __nv_bfloat162*) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
__device__ inline unsigned word_of(float low, float high, __half2*) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&both);
}
__device__ inline unsigned word_of(float low, float high, __nv_bfloat162*) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&both);
}
template <typename T>
struct PairOf;
template <>
struct PairOf<__half> {
  using Type = __half2;
};
template <>
struct PairOf<__nv_bfloat16> {
  using Type = __nv_bfloat162;
};

template <typename T, int V>
__device__ void Pack<T, V>::unpack(float (&to)[V]) const {
  const unsigned word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (V == 4) {
      to[i] = __uint_as_float(word[i]);
    } else {
      const float2 two = halves(word[i], static_cast<typename PairOf<T>::Type*>(nullptr));
      to[2 * i] = two.x;
      to[2 * i + 1] = two.y;
    }
  }
}

template <typename T, int V>
__device__ Pack<T, V> Pack<T, V>::of(const float (&from)[V]) {
  unsigned word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (V == 4)
      word[i] = __float_as_uint(from[i]);
    else
      word[i] =
          word_of(from[2 * i], from[2 * i + 1], static_cast<typename PairOf<T>::Type*>(nullptr));
  }
  return {uint4{word[0], word[1], word[2], word[3]}};
}

template <typename T, int V>
__device__ Pack<T, V> load(const T* from) {
  return *reinterpret_cast<const Pack<T, V>*>(from);
}

template <typename T, int V>
__device__ void store(const Pack<T, V>& pack, T* to) {
  *reinterpret_cast<Pack<T, V>*>(to) = pack;
}
template <typename T, int V>
__device__ void store(const float (&values)[V], T* to) {
  store(Pack<T, V>::of(values), to);
}

}  // namespace keel::lab::cuda
