#pragma once

// The kernel around split_mma.cuh and stored_mma.cuh: a block takes every task.chunks-th tile of a
// slab and writes one set of sums. 16-bit numbers are multiplied as stored in groups whose means
// are small. If a slab has groups of both kinds, the block goes over its tiles twice.

#include "cuda/launch/launch.h"
#include "cuda/moments/shift.cuh"
#include "cuda/moments/split_mma.cuh"
#include "cuda/moments/stored_mma.cuh"

namespace keel::cuda {

/// How a block's shared memory is used: a ring of tiles for each team of warps.
template <typename T, bool LAST, bool SAME, int WIDTH>
struct MomentsRing {
  using Mma = SplitMma<T, LAST, SAME, WIDTH>;
  static constexpr int kSides = SAME ? 1 : 2;
  static constexpr int kStages = sizeof(T) == 4 ? 2 : 4;
  static constexpr int kBytes = kStages * Mma::kTeams * kSides * Mma::Tile::kBytes;
  static_assert(Mma::kFoldBytes <= kBytes && kStages <= Mma::kRunRounds);
};

template <typename T, bool LAST, bool SAME, int WIDTH>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_slabs(const __grid_constant__ MomentsTask<T> task) {
  using Ring = MomentsRing<T, LAST, SAME, WIDTH>;
  using Mma = typename Ring::Mma;
  using Tile = typename Mma::Tile;
  constexpr bool kMayBeStored = sizeof(T) == 2;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float center[kSlots];
  __shared__ double totals[kMayBeStored && !SAME ? kSlots : 1];
  __shared__ unsigned small_slots[2];
  __shared__ __align__(
      16) unsigned char shift_room[SAME ? kTileThreads * int(sizeof(SampledChannel)) : 1];

  const int thread = int(threadIdx.x), team = thread / 32 / Mma::kTeamWarps;
  const int slab = int(blockIdx.x % unsigned(task.pairs)), first_channel = slab * kSlots;
  const std::int64_t chunk = blockIdx.x / unsigned(task.pairs), samples = task.left.layout.samples;
  const std::int64_t tiles = pieces<std::int64_t>(samples, kTileSamples);
  const int rounds = int(pieces<std::int64_t>(pieces(tiles - chunk, task.chunks), Mma::kTeams));
  const auto tile_of = [&](int round) {
    return chunk + task.chunks * (std::int64_t(round) * Mma::kTeams + team);
  };
  const auto count_of = [&](std::int64_t n) {
    const std::int64_t left = samples - n * kTileSamples;
    return int(left < kTileSamples ? left : kTileSamples);
  };
  const auto place = [&](int stage, int side) {
    return reinterpret_cast<T*>(memory) +
           ((stage * Mma::kTeams + team) * Ring::kSides + side) * Tile::kNumbers;
  };
  const auto fetch = [&](int round, int end) {
    const std::int64_t n = tile_of(round);
    const int side = thread / 32 % Mma::kTeamWarps;
    if (round < end && n < tiles)
      Tile::fetch(side == 0 ? task.left : task.right, first_channel, n * kTileSamples, count_of(n),
                  place(round % Ring::kStages, side));
    commit_copies();
  };

  await_previous();
  let_next_start();
  // Load the few samples for the shift first, or they would queue behind the tiles.
  ShiftSamples<T, kTileThreads> samples_for_shift;
  if constexpr (SAME) samples_for_shift.load(task.left, first_channel + thread % kSlots);
  const auto fetch_first = [&](int begin, int end) {
#pragma unroll 1
    for (int stage = 0; stage < Ring::kStages; ++stage) fetch(begin + stage, end);
  };
  fetch_first(0, rounds);
  bool small = false;  // whether the mean of this thread's slot is small
  SampledChannel sampled;
  if constexpr (SAME) {
    sampled = samples_for_shift.gather(reinterpret_cast<SampledChannel*>(shift_room));
    small = thread < kSlots && sampled.about_zero();
  } else if (thread < kSlots) {
    const int d = task.slabs.group_size, channel = first_channel + thread;
    center[thread] = task.center != nullptr ? task.center[channel] : 0.0f;
    small =
        task.center == nullptr ||
        (kMayBeStored && task.covariance.data != nullptr &&
         small_mean(center[thread],
                    task.covariance[channel / d][channel % d * (task.covariance.row_stride + 1)]));
  }
  StoredGroups stored{0, task.slabs.group_size};
  if constexpr (kMayBeStored) stored.small = gathered_slots(small, small_slots);
  if (SAME && thread < kSlots) {
    center[thread] = kMayBeStored && stored.has(thread) ? 0.0f : float(sampled.shift());
    if (chunk == 0) task.shift[first_channel + thread] = center[thread];
  }
  __syncthreads();

  const auto run = [&](auto mma) {
    constexpr bool kAsStored = decltype(mma)::kAsStored;
    constexpr int kLongest = decltype(mma)::kRunRounds;
    constexpr int kStepsAtOnce = SAME && WIDTH == kSlots ? 1 : 2;  // as registers allow
    for (int begin = 0; begin < rounds; begin += kLongest) {
      const int end = rounds - begin < kLongest ? rounds : begin + kLongest;
      if (begin > 0) fetch_first(begin, end);
      for (int round = begin; round < end; ++round) {
        await_copies_but<Ring::kStages - 1>();
        sync_team<Mma::kTeamWarps>(team + 1);
        const std::int64_t n = tile_of(round);
        if (n < tiles) {
          const int count = count_of(n), stage = round % Ring::kStages;
          T *const left = place(stage, 0), *const right = place(stage, Ring::kSides - 1);
          if constexpr (kAsStored) {
            if (count < kTileSamples) {
              Tile::clear(count, place(stage, thread / 32 % Mma::kTeamWarps));
              sync_team<Mma::kTeamWarps>(team + 1);
            }
            mma.add(left, right);
          } else {
#pragma unroll(kStepsAtOnce)
            for (int step = 0; step < kTileSamples / mma.kStepSamples; ++step)
              mma.add(left, right, step, count);
          }
        }
        sync_team<Mma::kTeamWarps>(team + 1);
        fetch(round + Ring::kStages, end);
      }
      __syncthreads();
      mma.template fold<kAsStored>(task, first_channel, task.sets + chunk * task.set_size,
                                   reinterpret_cast<float*>(memory), stored, center, totals,
                                   begin == 0);
    }
  };
  if constexpr (kMayBeStored) {
    if (stored.slots() != 0) {
      run(StoredMma<T, LAST, SAME, WIDTH>());
      if (stored.all()) return;
      fetch_first(0, rounds);
    }
  }
  run(Mma(center));
}

}  // namespace keel::cuda
