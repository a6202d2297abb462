#pragma once

// Matrices between what one block's shared memory holds and N (256, float64: 128) go through four kernels:
// reduce (matrix -> tridiagonal), halves (its two halves decomposed, a block each), join (the values of the
// last merge) and finish (vectors, a block for every 64 of them). This is what one leaves for the next.

#include "cuda/eigh/divide.cuh"
#include "keel/eigh.h"

namespace keel::cuda {

/// In device memory, one for each matrix under way.
template <typename T, int N>
struct MiddleParts {
  static constexpr int kHalf = N / 2;
  alignas(16) T reflectors[N * N];   ///< row k: reflection k's vector, from square k / 32 on
  alignas(16) T vectors[N * kHalf];  ///< the halves' eigenvectors, column by column
  alignas(16) MergeStorage<T, N> merge;
  T diagonal[N], coupling[N], reflector_scale[N];
  int order[N];    ///< the matrix's row that is worked as row i
  int root_at[N];  ///< the last merge's root at that place of the values
  int exponent, finite, alive, turns;
};

/// Sums of COUNT numbers over a warp, COUNT a power of two up to 32, in COUNT - 1 + log2(32 / COUNT) shuffles
/// instead of 5 COUNT. Returns that of number `lane / (32 / COUNT)`.
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

}  // namespace keel::cuda
