#pragma once

// Products of matrices of any size, one tile per block.

#include "cuda/pack.cuh"

namespace keel::cuda {

/// 32 x 32 entries of a product, 4 x 4 for each of 64 threads.
template <typename T>
struct GridTile {
  static constexpr int kSize = 32, kThreads = 64, kOwn = 4;
  static constexpr int kRow = kSize + 16 / int(sizeof(T));
  static constexpr int kFetched = kSize * kSize / kThreads;
  alignas(16) T a[kSize][kRow];
  alignas(16) T b[kSize][kRow];  ///< both indexed by k, then by row or column

  /// Calls put(i, j, sum over k of left(i, k) right(k, j)) for i < rows, j < columns, in the tile that starts at
  /// (top, first). LEFT_ALONG and RIGHT_ALONG: neighbouring threads read neighbouring k of that factor. Calls `look`
  /// whenever the next slices of a and b are in shared memory.
  template <bool LEFT_ALONG, bool RIGHT_ALONG, typename Left, typename Right, typename Put,
            typename Look>
  __device__ void multiply(int rows, int columns, int depth, int top, int first, const Left& left,
                           const Right& right, const Put& put, const Look& look) {
    const int thread = int(threadIdx.x), row = thread / 8 * kOwn, column = thread % 8 * kOwn;
    T sum[kOwn][kOwn] = {};
    T next_a[kFetched], next_b[kFetched];
    const auto fetch = [&](int begin) {
#pragma unroll
      for (int f = 0; f < kFetched; ++f) {
        const int quick = thread % kSize, slow = thread / kSize + f * (kThreads / kSize);
        const int ka = begin + (LEFT_ALONG ? quick : slow), i = top + (LEFT_ALONG ? slow : quick);
        const int kb = begin + (RIGHT_ALONG ? quick : slow),
                  j = first + (RIGHT_ALONG ? slow : quick);
        next_a[f] = ka < depth && i < rows ? left(i, ka) : T(0);
        next_b[f] = kb < depth && j < columns ? right(kb, j) : T(0);
      }
    };
    fetch(0);
    for (int begin = 0; begin < depth; begin += kSize) {
#pragma unroll
      for (int f = 0; f < kFetched; ++f) {
        const int quick = thread % kSize, slow = thread / kSize + f * (kThreads / kSize);
        a[LEFT_ALONG ? quick : slow][LEFT_ALONG ? slow : quick] = next_a[f];
        b[RIGHT_ALONG ? quick : slow][RIGHT_ALONG ? slow : quick] = next_b[f];
      }
      __syncthreads();
      if (begin + kSize < depth) fetch(begin + kSize);
      look();
#pragma unroll 8
      for (int k = 0; k < kSize; ++k) {
        const auto x = pack_at<kOwn>(&a[k][row]), y = pack_at<kOwn>(&b[k][column]);
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
#pragma unroll
          for (int j = 0; j < kOwn; ++j) sum[i][j] = fma(x.at[i], y.at[j], sum[i][j]);
      }
      __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        if (top + row + i < rows && first + column + j < columns)
          put(top + row + i, first + column + j, sum[i][j]);
  }
  template <bool LEFT_ALONG, bool RIGHT_ALONG, typename Left, typename Right, typename Put>
  __device__ void multiply(int rows, int columns, int depth, int top, int first, const Left& left,
                           const Right& right, const Put& put) {
    multiply<LEFT_ALONG, RIGHT_ALONG>(rows, columns, depth, top, first, left, right, put, [] {});
  }
};

}  // namespace keel::cuda
