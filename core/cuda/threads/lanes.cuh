#pragma once

// What the lanes of a warp, or of a part of it, do together.

namespace keel::cuda {

/// Sums COUNT numbers over a warp, COUNT a power of two up to 32, with COUNT - 1 + log2(32 / COUNT)
/// shuffles instead of 5 COUNT. Returns the sum of number `lane / (32 / COUNT)`.
template <int COUNT, typename T>
__device__ __forceinline__ T warp_sums(int lane, T (&x)[COUNT]) {
#pragma unroll
  for (int count = COUNT, distance = 16; distance > 0; distance /= 2) {
    if (count > 1) {
      count /= 2;
#pragma unroll
      for (int i = 0; i < COUNT / 2; ++i) {
        if (i >= count) break;
        const bool upper = lane & distance;
        const T away = upper ? x[i] : x[i + count];
        x[i] = (upper ? x[i + count] : x[i]) + __shfl_xor_sync(0xffffffffu, away, distance);
      }
    } else {
      x[0] += __shfl_xor_sync(0xffffffffu, x[0], distance);
    }
  }
  return x[0];
}

template <typename T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

/// COUNT adjacent lanes of a warp that share a row, a column or a root, COUNT a power of two. All lanes of the warp take
/// part in each of these.
template <int COUNT>
struct Lanes {
  static constexpr int kLanes = COUNT;
  __device__ static int lane() { return int(threadIdx.x) % COUNT; }
  __device__ static constexpr int lanes() { return COUNT; }
  /// Whether the flag is set in all lanes of the warp, or in any.
  __device__ static bool all(bool flag) { return __all_sync(0xffffffffu, flag); }
  __device__ static bool any_in_warp(bool flag) { return __any_sync(0xffffffffu, flag) != 0; }
  template <typename U>
  __device__ static U near(U x, int distance) {
    return __shfl_xor_sync(0xffffffffu, x, distance);
  }
  template <typename U>
  __device__ static U sum(U x) {
#pragma unroll
    for (int distance = 1; distance < COUNT; distance *= 2) x += near(x, distance);
    return x;
  }
  template <typename U>
  __device__ static U product(U x) {
#pragma unroll
    for (int distance = 1; distance < COUNT; distance *= 2) x *= near(x, distance);
    return x;
  }
  template <typename U>
  __device__ static U largest(U x) {
#pragma unroll
    for (int distance = 1; distance < COUNT; distance *= 2) x = fmax(x, near(x, distance));
    return x;
  }
};

}  // namespace keel::cuda
