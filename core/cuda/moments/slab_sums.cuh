#pragma once

// The sums of products of a slab of 64 channels that a warp keeps in registers, and how a block's
// warps add theirs up. With two different activations, two warps share a tile of samples and split
// the rows of the products. The channels form four pairs of 16, each of two blocks of eight.
// Products of two pairs are two tiles of 16 x 8, distributed over a warp as tensor cores do
// (matrix/tensor_core.cuh).

#include "cuda/activations/tile.cuh"
#include "cuda/moments/kernel.cuh"
#include "cuda/threads.cuh"

namespace keel::cuda {

/// SAME: the products of an activation with itself, of which only the lower triangle is computed.
/// WIDTH: groups have at most 16, 32 or 64 channels, and products across groups of that size are
/// not computed. INTERLEAVED: the blocks of a pair are its even and odd channels, otherwise its
/// first and last eight.
template <bool SAME, int WIDTH, bool INTERLEAVED>
struct SlabSums {
  static constexpr int kTeamWarps = SAME ? 1 : 2;
  static constexpr int kTeams = kTileWarps / kTeamWarps;
  static constexpr int kPairs = WIDTH / 16;                       // of a group
  static constexpr int kLeft = SAME ? 4 : 2;                      // pairs in a warp's rows
  static constexpr int kRight = SAME || WIDTH == kSlots ? 4 : 2;  // pairs in its columns
  static constexpr bool used(int left, int right) {
    return left / kPairs == right / kPairs && (!SAME || right <= left);
  }
  static constexpr int kCells = SAME ? kPairs * (kPairs + 1) / 2 : kPairs * kPairs;  // of a group
  /// The index of the first of the two tiles of products of two pairs.
  static constexpr int tile(int left, int right) {
    const int row = left % kPairs, column = right % kPairs;
    return 2 * (left / kPairs * kCells + (SAME ? row * (row + 1) / 2 : row * kPairs) + column);
  }
  /// The two pairs of the tiles 2 index and 2 index + 1.
  static constexpr Cell pairs_of(int index) {
    const int first = index / kCells * kPairs, within = index % kCells;
    const Cell cell = SAME ? cell_of_triangle(within) : Cell{within / kPairs, within % kPairs};
    return {first + cell.row, first + cell.column};
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
  __device__ int right_pair(int p) const { return SAME || WIDTH == kSlots ? p : 2 * half + p; }

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
      const float total = Lanes<4>::sum(sums[b]);
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
    // A warp takes one of the eight sums that a lane has of two pairs. It is the same for all pairs,
    // so that the compiler knows the rest.
    const unsigned long long wanted = AS_STORED ? stored.slots() : ~stored.slots();
    const int d = task.slabs.group_size;  // a power of two
    double* const products_of_set = set + std::int64_t(channel) * d;
    constexpr int kOfTeam = kSums / 8;
#pragma unroll
    for (int p = 0; p < kTeamWarps * kOfTeam; ++p) {
      const int part = p / kOfTeam, q = p % kOfTeam * 8 + warp;
      const Cell pairs = pairs_of(p % kOfTeam);
      const int left = pairs.row + (SAME ? 0 : 2 * part);
      const int right = pairs.column + (SAME || WIDTH == kSlots ? 0 : 2 * part);
      const int i = slot(2 * left + warp / 2 % 2, lane / 4);
      const int j = slot(2 * right + warp / 4, 2 * (lane % 4) + warp % 2);
      double total = 0;
#pragma unroll
      for (int team = 0; team < kTeams; ++team)
        total += double(room[((team * kTeamWarps + part) * kSums + q) * 32 + lane]);
      if ((i ^ j) & -d || (wanted >> i & 1) == 0) continue;
      if constexpr (kCenters) total -= totals[i] * double(centers[j]);
      double& entry = products_of_set[i * d + (j & (d - 1))];
      entry = first ? total : entry + total;
    }
    __syncthreads();
  }
};

}  // namespace keel::cuda
