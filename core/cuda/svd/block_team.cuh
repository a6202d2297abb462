#pragma once

// The threads of a block as a team: see columns.h and polish/tiles.h.

#include <cstdint>

#include "cuda/threads/lanes.cuh"

namespace keel::cuda {

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
