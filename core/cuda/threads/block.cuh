#pragma once

// The threads that share a matrix. All of these types use the same words: thread() of size() threads; lane() of lanes()
// neighbours in a warp, which are group() of groups(); sync(), a barrier of all threads, and any(), a vote of all;
// step(), a barrier of a warp; near(), sum(), product() and largest() over the lanes of a group. Lanes (lanes.cuh) is a
// part of a warp, MatrixThreads a part of a warp or a whole block, BlockTeam a whole block, and ClusterTeam
// (svd/jacobi/kernel.cuh) several blocks.

#include <cstdint>

#include "cuda/svd/layouts.h"
#include "cuda/threads/lanes.cuh"

namespace keel::cuda {

/// COUNT threads with a matrix: a whole block, a warp or a part of one.
template <int COUNT>
struct MatrixThreads {
  static constexpr bool kBlock = COUNT > 32;
  int index_in_team;

  __device__ int thread() const { return index_in_team; }
  __device__ static constexpr int size() { return COUNT; }
  __device__ void sync() const {
    if constexpr (kBlock)
      __syncthreads();
    else
      __syncwarp();
  }
  /// Of the block, or of the warp, which may hold several matrices.
  __device__ static bool any(bool flag) {
    if constexpr (kBlock)
      return __syncthreads_or(flag);
    else
      return __any_sync(0xffffffffu, flag);
  }
};

/// A group of LANES threads of one warp works on a column. Each can hold HELD times 16 bytes of it. ALL says that no
/// column is longer than a group can hold.
template <int LANES, int HELD, bool ALL>
struct WarpLanes : Lanes<LANES> {
  static constexpr int kHeld = HELD;
  static constexpr bool kAllHeld = ALL;
  __device__ static void step() { __syncwarp(); }
  __device__ static bool any_in_step(bool flag) { return Lanes<LANES>::any_in_warp(flag); }
};

/// A block as a team.
template <int LANES, int HELD, bool ALL = true>
struct BlockTeam : WarpLanes<LANES, HELD, ALL> {
  __device__ static int thread() { return int(threadIdx.x); }
  __device__ static int size() { return int(blockDim.x); }
  __device__ static int group() { return thread() / LANES; }
  __device__ static int groups() { return size() / LANES; }
  __device__ static void sync() { __syncthreads(); }
  __device__ static bool any(bool flag) { return __syncthreads_or(flag) != 0; }
  __device__ static void fetch(const void*) {}
};

/// A block whose threads have one tile of WIDE columns each.
template <int WIDE>
struct TileTeam : BlockTeam<8, 1, false> {
  static constexpr int kWide = WIDE, kTiles = 1;
  __device__ static int count(bool flag) { return __syncthreads_count(flag); }
  template <typename T, int COUNT>
  __device__ static void total(T (&x)[COUNT]) {
    __shared__ T of_warp[32][COUNT];
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2)
#pragma unroll
      for (int i = 0; i < COUNT; ++i) x[i] += __shfl_xor_sync(0xffffffffu, x[i], distance);
    if (threadIdx.x % 32 == 0)
#pragma unroll
      for (int i = 0; i < COUNT; ++i) of_warp[threadIdx.x / 32][i] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COUNT; ++i) x[i] = 0;
#pragma unroll 4
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp)
#pragma unroll
      for (int i = 0; i < COUNT; ++i) x[i] += of_warp[warp][i];
    __syncthreads();  // before they are overwritten
  }
};

}  // namespace keel::cuda
