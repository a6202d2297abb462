#pragma once

// The sums of products of a slab of 64 channels that a warp keeps in registers, and how a block's
// warps add theirs up. With two different activations, two warps share a tile of samples and split
// the rows of the products. The channels form four pairs of 16, each of two blocks of eight.
// Products of two pairs are two tiles of 16 x 8, distributed over a warp as tensor cores do
// (matrix/tensor_core.cuh).

#include "cuda/activations/tile.cuh"
#include "cuda/moments/kernel.cuh"

namespace keel::cuda {

inline constexpr int kRunRounds = 16;  // tiles of a warp between two folds

/// SAME: the products of an activation with itself, of which only the lower triangle is computed.
/// NARROW: groups of at most 16 channels, so only products within a pair are computed.
/// INTERLEAVED: the blocks of a pair are its even and odd channels, otherwise its first and last
/// eight.
template <bool SAME, bool NARROW, bool INTERLEAVED>
struct SlabSums {
  static constexpr int kTeamWarps = SAME ? 1 : 2;
  static constexpr int kTeams = kTileWarps / kTeamWarps;
  static constexpr int kLeft = SAME ? 4 : 2;              // pairs in a warp's rows
  static constexpr int kRight = SAME || !NARROW ? 4 : 2;  // pairs in its columns
  static constexpr bool used(int left, int right) {
    return NARROW ? left == right : !SAME || right <= left;
  }
  /// The index of the first of the two tiles of products of two pairs.
  static constexpr int tile(int left, int right) {
    return 2 * (NARROW ? left : SAME ? left * (left + 1) / 2 + right : left * 4 + right);
  }
  static constexpr int kTiles = tile(kLeft - 1, kRight - 1) + 2;
  static constexpr int kSums = kTiles * 4;  // of a lane
  static constexpr int kFoldBytes = kTileWarps * (kSums * 32 + kSlots) * 4;

  int g, t, half;  // the lane's row and column in a fragment; the warp's half of the team
  float products[kTiles][4] = {};
  float sums[kLeft * 2] = {};  // of the left side

  __device__ SlabSums()
      : g(int(threadIdx.x) % 32 / 4),
        t(int(threadIdx.x) % 4),
        half(int(threadIdx.x) / 32 % kTeamWarps) {}

  /// The slot of row (or column) `index` of a block.
  static __device__ int slot(int block, int index) {
    return INTERLEAVED ? block / 2 * 16 + 2 * index + block % 2 : block * 8 + index;
  }
  __device__ int left_pair(int p) const { return SAME ? p : 2 * half + p; }
  __device__ int right_pair(int p) const { return SAME || !NARROW ? p : 2 * half + p; }

  /// Folds the warps' sums of the groups for which `stored` is AS_STORED into the chunk's set, using
  /// shared memory that is not the target of a pending copy. If AS_STORED, the right side's centers
  /// are subtracted here; `totals` is scratch memory for that.
  template <bool AS_STORED, typename T>
  __device__ void fold(const MomentsTask<T>& task, int channel, double* set, float* room,
                       const StoredGroups& stored, const float* centers, double* totals,
                       bool first) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    float* sums_room = room + kTileWarps * kSums * 32;
#pragma unroll
    for (int q = 0; q < kSums; ++q) {
      room[(warp * kSums + q) * 32 + lane] = products[q / 4][q % 4];
      products[q / 4][q % 4] = 0;
    }
#pragma unroll
    for (int b = 0; b < kLeft * 2; ++b) {
      float total = sums[b];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      if (t == 0) sums_room[warp * kSlots + slot(2 * left_pair(b / 2) + b % 2, g)] = total;
      sums[b] = 0;
    }
    __syncthreads();
    constexpr bool kCenters = AS_STORED && !SAME;
    if (threadIdx.x < kSlots && stored.has(int(threadIdx.x)) == AS_STORED) {
      const int part = int(threadIdx.x) / (kSlots / kTeamWarps);
      double total = 0;
      for (int team = 0; team < kTeams; ++team)
        total += double(sums_room[(team * kTeamWarps + part) * kSlots + int(threadIdx.x)]);
      double& entry = set[std::int64_t(task.slabs.channels) * task.slabs.group_size + channel +
                          int(threadIdx.x)];
      entry = first ? total : entry + total;
      if constexpr (kCenters) totals[threadIdx.x] = total;
    }
    if constexpr (kCenters) __syncthreads();
#pragma unroll 4
    for (int e = int(threadIdx.x); e < kTeamWarps * kSums * 32; e += kTileThreads)
      fold_product<AS_STORED>(task, channel, set, room, stored, centers, totals, e, first);
    __syncthreads();
  }

 private:
  /// Folds sum `e` of a team over all teams.
  template <bool AS_STORED, typename T>
  static __device__ void fold_product(const MomentsTask<T>& task, int channel, double* set,
                                      const float* room, const StoredGroups& stored,
                                      const float* centers, const double* totals, int e,
                                      bool first) {
    const int lane = e % 32, q = e / 32 % kSums, part = e / 32 / kSums, pair = q / 8;
    const Cell cell = NARROW ? Cell{pair, pair}
                      : SAME ? cell_of_triangle(pair)
                             : Cell{pair / 4, pair % 4};
    const int first_pair = SAME ? 0 : 2 * part;
    const int left = 2 * (first_pair + cell.row) + q / 2 % 2;
    const int right = 2 * (NARROW ? first_pair + cell.column : cell.column) + q / 4 % 2;
    const int i = slot(left, lane / 4), j = slot(right, 2 * (lane % 4) + q % 2);
    double total = 0;
#pragma unroll
    for (int team = 0; team < kTeams; ++team)
      total += double(room[((team * kTeamWarps + part) * kSums + q) * 32 + lane]);
    const int d = task.slabs.group_size;  // a power of two
    if ((i ^ j) & -d || stored.has(i) != AS_STORED) return;
    if constexpr (AS_STORED && !SAME) total -= totals[i] * double(centers[j]);
    double& entry = set[std::int64_t(channel + i) * d + (j & (d - 1))];
    entry = first ? total : entry + total;
  }
};

}  // namespace keel::cuda
