#pragma once

// How the activations are dealt to blocks, and how blocks add up what they have.

#include <algorithm>
#include <cstdint>

#include "lab/models/fused_norm_kernels.h"

namespace keel::lab::cuda {

using Index = std::int64_t;

// A block takes 8 packs of a row, 128 bytes where a pack has 16, and 64 rows at once.
constexpr int kPacks = 8;
constexpr int kThreads = 512, kRows = kThreads / kPacks, kWarps = kThreads / 32;
constexpr int kWarpRows = 32 / kPacks;
/// Parts that are summed by themselves, about. A number of the code, not of the GPU: it decides the order of the sums.
constexpr Index kParts = 132;

inline Index parts_of(Index whole, Index part) { return (whole + part - 1) / part; }

/// The activations cut into tiles of channels, and these into parts of some rows. A block has one part, or several on a
/// GPU where there are fewer blocks than parts.
struct Cut {
  Index tiles = 0, parts = 0, rows = 0;  ///< rows of a part
};
template <int V>
Cut cut_of(const NormTask& task) {
  const Index tiles = parts_of(task.channels, kPacks * V);
  const Index wanted = std::max<Index>(1, kParts / tiles);
  const Index rows = parts_of(parts_of(task.rows, wanted), kRows) * kRows;
  return {tiles, parts_of(task.rows, rows), rows};
}

/// Where a thread stands in its tile.
template <int V>
struct Place {
  static constexpr int kWidth = kPacks * V;  ///< channels of a tile
  Index tile, channel;                       ///< the thread's first channel
  int row, warp, lane;
  __device__ explicit Place(Index of_tile)
      : tile(of_tile),
        channel((of_tile * kPacks + threadIdx.x % kPacks) * V),
        row(int(threadIdx.x) / kPacks),
        warp(int(threadIdx.x) / 32),
        lane(int(threadIdx.x) % 32) {}
};

/// Rows of a part.
struct Part {
  Index first, last;
  __device__ Part(const Cut& cut, Index index, Index rows)
      : first(index * cut.rows), last(min(rows, first + cut.rows)) {}
  __device__ float rows_of_warp(int warp) const {
    const int all = int(last - first), rest = all % kRows - warp * kWarpRows;
    return float(all / kRows * kWarpRows + min(max(rest, 0), kWarpRows));
  }
};

/// Adds up a warp's rows; the first 8 lanes have the sums.
template <int V>
__device__ void add_rows(float (&x)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) {
    x[i] += __shfl_xor_sync(0xffffffffu, x[i], 8);
    x[i] += __shfl_xor_sync(0xffffffffu, x[i], 16);
  }
}

/// Waits until all blocks of a tile are here; what they wrote before is seen after. They run at the same time: the launch
/// is cooperative. `barrier` is two numbers, how many came and how often all did.
__device__ inline void meet(unsigned* barrier) {
  __syncthreads();
  if (threadIdx.x == 0 && gridDim.x > 1) {
    volatile unsigned* const round = barrier + 1;
    const unsigned now = *round;
    __threadfence();
    if (atomicAdd(barrier, 1u) == gridDim.x - 1) {
      *static_cast<volatile unsigned*>(barrier) = 0;
      __threadfence();
      *round = now + 1;
    } else {
      while (*round == now) {
      }
    }
    __threadfence();
  }
  __syncthreads();
}

struct Pair {
  double x, y;
};

/// The sum of term(part, its pair) over all parts of a tile, for the threads below kWidth, a channel each. Every block adds them in
/// the same order.
template <int kWidth, typename Term>
__device__ Pair add_parts(const float2* pairs, Index parts, const Term& term) {
  constexpr int kAtOnce = kThreads / kWidth;
  __shared__ Pair sums[kThreads];
  const int column = int(threadIdx.x) % kWidth;
  Pair total{0, 0};
#pragma unroll 8
  for (Index part = threadIdx.x / kWidth; part < parts; part += kAtOnce) {
    const Pair next = term(part, __ldcg(pairs + part * kWidth + column));
    total.x += next.x;
    total.y += next.y;
  }
  sums[threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.x < kWidth) {
#pragma unroll
    for (int k = 1; k < kAtOnce; ++k) {
      total.x += sums[k * kWidth + column].x;
      total.y += sums[k * kWidth + column].y;
    }
  }
  return total;
}

}  // namespace keel::lab::cuda
