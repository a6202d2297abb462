#pragma once

// How the activations are distributed over blocks, and how blocks add up their results.

#include <algorithm>
#include <cstdint>

#include "lab/models/fused_norm_kernels.h"

namespace keel::lab::cuda {

using Index = std::int64_t;

// A block processes 8 packs of a row (128 bytes if a pack has 16) and 64 rows at once.
constexpr int kPacks = 8;
constexpr int kThreads = 512, kRows = kThreads / kPacks, kWarps = kThreads / 32;
constexpr int kWarpRows = 32 / kPacks;
static_assert(kThreads == 64 * 8);  // channels of the widest tile times adders per channel
/// Approximate number of parts that are summed separately. Fixed, not taken from the GPU, because it decides the
/// order of the sums.
constexpr Index kParts = 132;

inline Index parts_of(Index whole, Index part) { return (whole + part - 1) / part; }

/// The activations are cut into tiles of channels, and tiles into parts of rows. A block has one part, or several if
/// the GPU runs fewer blocks than there are parts.
struct Cut {
  Index tiles = 0, parts = 0, rows = 0;  ///< rows: of a part
};
template <int V>
Cut cut_of(const NormTask& task) {
  const Index tiles = parts_of(task.channels, kPacks * V);
  const Index wanted = std::max<Index>(1, kParts / tiles);
  const Index rows = parts_of(parts_of(task.rows, wanted), kRows) * kRows;
  return {tiles, parts_of(task.rows, rows), rows};
}

/// A thread's position in its tile.
template <int V>
struct Place {
  static constexpr int kWidth = kPacks * V;  ///< channels of a tile
  Index tile, channel;                       ///< channel: the thread's first
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

/// One number per warp and channel. Padded so that the adders of four channels read from 32 different banks.
template <int kWidth>
using OfWarps = float[kWarps][kWidth + 4];

/// Adds up a warp's rows. The first 8 lanes have the sums.
template <int V>
__device__ void add_rows(float (&x)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) {
    x[i] += __shfl_xor_sync(0xffffffffu, x[i], 8);
    x[i] += __shfl_xor_sync(0xffffffffu, x[i], 16);
  }
}

/// Barrier for the blocks of a tile. The launch is cooperative, so they all run at the same time. Writes before the
/// barrier are visible after it. A round adds 2^31 in total to one counter, which therefore never needs a reset: its
/// top bit tells the rounds apart.
class Barrier {
 public:
  /// Construct it before the block's first wait.
  __device__ explicit Barrier(unsigned* number)
      : number_(number), round_(*static_cast<volatile unsigned*>(number) & kRound) {}

  __device__ void wait() {
    __syncthreads();
    if (threadIdx.x == 0 && gridDim.x > 1) {
      const unsigned share = blockIdx.x == 0 ? kRound - (gridDim.x - 1) : 1;
      asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(number_), "r"(share)
                   : "memory");
      while ((read() & kRound) == round_) {
      }
      round_ ^= kRound;
    }
    __syncthreads();
  }

 private:
  static constexpr unsigned kRound = 0x80000000u;
  unsigned* number_;
  unsigned round_;

  __device__ unsigned read() const {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(number_) : "memory");
    return value;
  }
};

/// Each channel of the tile has eight neighbouring threads, its adders. They share the additions, and each gets the
/// sum.
constexpr int kAdders = 8;
template <typename Number>
__device__ Number sum_of_adders(Number x) {
#pragma unroll
  for (int step = 1; step < kAdders; step *= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

struct Pair {
  double x, y;
};

/// All adders of a channel have the same pair; one writes it.
template <int kWidth>
__device__ void write_pair(float2 pair, float2* pairs) {
  const int channel = int(threadIdx.x) / kAdders;
  if (threadIdx.x % kAdders == 0 && channel < kWidth) pairs[channel] = pair;
}

/// The sum of term(pair, pair of the first part, part) over all parts of a tile, in the same order in every block.
/// All adders of a channel get it. At first each thread takes two channels, so that whole lines are read.
template <int kWidth, typename Term>
__device__ Pair add_parts(const float2* pairs, Index parts, const Term& term) {
  constexpr int kTwos = kWidth / 2, kGroups = kThreads / kTwos;
  __shared__ Pair sums[kGroups][kWidth + 1];  // padded, so that adders read from different banks
  const int two = int(threadIdx.x) % kTwos, group = int(threadIdx.x) / kTwos;
  const float4* const from = reinterpret_cast<const float4*>(pairs) + two;
  const float4 first = __ldcg(from);
  Pair low{0, 0}, high{0, 0};
#pragma unroll 8
  for (int part = group; part < int(parts); part += kGroups) {
    const float4 both = __ldcg(from + part * kTwos);
    const Pair a = term({both.x, both.y}, {first.x, first.y}, part),
               b = term({both.z, both.w}, {first.z, first.w}, part);
    low = {low.x + a.x, low.y + a.y};
    high = {high.x + b.x, high.y + b.y};
  }
  sums[group][2 * two] = low;
  sums[group][2 * two + 1] = high;
  __syncthreads();
  const int channel = int(threadIdx.x) / kAdders;
  Pair total{0, 0};
  if (channel < kWidth) {
#pragma unroll
    for (int g = int(threadIdx.x) % kAdders; g < kGroups; g += kAdders)
      total = {total.x + sums[g][channel].x, total.y + sums[g][channel].y};
  }
  return {sum_of_adders(total.x), sum_of_adders(total.y)};
}

}  // namespace keel::lab::cuda
