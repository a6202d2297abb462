#pragma once

// Neighbouring channels of a row, read, kept and written together.

#include <cuda_bf16.h>

namespace keel::lab::cuda {

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void narrow(float x, float& to) { to = x; }
__device__ inline void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

/// Neighbouring channels of a row, read and written at once: 16 bytes, or one number if V is 1. The 16 bytes stay
/// packed until their numbers are needed; unpacked, each bfloat16 number would take a register.
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

// A word of a pack is one float32 number (V == 4) or two bfloat16 numbers (V == 8).

template <typename T, int V>
__device__ void Pack<T, V>::unpack(float (&to)[V]) const {
  const unsigned word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (V == 4) {
      to[i] = __uint_as_float(word[i]);
    } else {
      to[2 * i] = __uint_as_float(word[i] << 16);
      to[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
  }
}

template <typename T, int V>
__device__ Pack<T, V> Pack<T, V>::of(const float (&from)[V]) {
  unsigned word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (V == 4) {
      word[i] = __float_as_uint(from[i]);
    } else {
      const __nv_bfloat162 both = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
      word[i] = *reinterpret_cast<const unsigned*>(&both);
    }
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
