#pragma once

// Changes of basis in the registers of one thread.

#include "cuda/tiny/tile.cuh"

namespace keel::cuda::tiny {

template <typename T, int N>
struct Registers {
  T at[N][N];

  __device__ __forceinline__ void take(Tile<T, N, N>& tile) {
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) at[i][j] = tile(i, j);
  }
};

/// a^T b
template <typename T, int N>
__device__ __forceinline__ Registers<T, N> transposed_times(const Registers<T, N>& a,
                                                            const Registers<T, N>& b) {
  Registers<T, N> c;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) {
      T sum = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) sum += a.at[k][i] * b.at[k][j];
      c.at[i][j] = sum;
    }
  return c;
}

/// to = v w v^T for symmetric w. Computes one triangle and mirrors it.
template <typename T, int N>
__device__ __forceinline__ void out_of_basis(const Registers<T, N>& v, const Registers<T, N>& w,
                                             Tile<T, N, N>& to) {
  Registers<T, N> p;  // w v^T
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) {
      T sum = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) sum += w.at[i][k] * v.at[j][k];
      p.at[i][j] = sum;
    }
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      T sum = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) sum += v.at[i][k] * p.at[k][j];
      to(i, j) = sum;
      to(j, i) = sum;
    }
}

}  // namespace keel::cuda::tiny
