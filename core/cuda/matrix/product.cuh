#pragma once

// A 64 x 64 tile of a product of matrices, by a block of 256 threads.

#include "cuda/memory.cuh"

namespace keel::cuda {

/// Rows of the left matrix and columns of the right one, kDepth of their numbers at a time. PAD numbers follow each, so
/// that they start in different banks.
template <typename T, int PAD = 16 / int(sizeof(T))>
struct ProductTile {
  static constexpr int kSize = 64, kDepth = 16, kThreads = 256;
  alignas(16) T left[kDepth][kSize + PAD];
  alignas(16) T right[kDepth][kSize + PAD];

  /// The first row and column of this thread's 4 x 4 entries.
  __device__ static int row() { return int(threadIdx.x) / 16 * 4; }
  __device__ static int column() { return int(threadIdx.x) % 16 * 4; }

  /// Adds what the tile's numbers give to this thread's entries.
  __device__ __forceinline__ void add_to(T (&sum)[4][4]) const {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const Pack<T> x = pack_at(&left[k][row()]), y = pack_at(&right[k][column()]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += x.at[i] * y.at[j];
    }
  }

  /// Adds the entries from (top, first) on of the product of n x n matrices: left_entry(i, k), right_entry(k, j). The
  /// flags say whether adjacent entries of a row, or of a column, are adjacent in memory.
  template <bool LEFT_BY_ROWS, bool RIGHT_BY_ROWS, typename Index, typename Left, typename Right>
  __device__ __forceinline__ void multiply(Index n, Index top, Index first, const Left& left_entry,
                                           const Right& right_entry, T (&sum)[4][4]) {
    const int thread = int(threadIdx.x);
    for (Index begin = 0; begin < n; begin += kDepth) {
#pragma unroll
      for (int e = thread; e < kSize * kDepth; e += kThreads) {
        const int r = LEFT_BY_ROWS ? e / kDepth : e % kSize;
        const int k = LEFT_BY_ROWS ? e % kDepth : e / kSize;
        left[k][r] = top + r < n && begin + k < n ? left_entry(top + r, begin + k) : T(0);
      }
#pragma unroll
      for (int e = thread; e < kSize * kDepth; e += kThreads) {
        const int c = RIGHT_BY_ROWS ? e % kSize : e / kDepth;
        const int k = RIGHT_BY_ROWS ? e / kSize : e % kDepth;
        right[k][c] = first + c < n && begin + k < n ? right_entry(begin + k, first + c) : T(0);
      }
      __syncthreads();
      add_to(sum);
      __syncthreads();
    }
  }
};

}  // namespace keel::cuda
