#pragma once

// The kernel around moments/mma.cuh: a block takes every task.chunks-th tile of a slab and writes
// one set of sums.

#include "cuda/launch/early_start.cuh"
#include "cuda/moments/mma.cuh"

namespace keel::cuda {

template <typename T, bool LAST, bool SAME, bool NARROW>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_slabs(const __grid_constant__ MomentsTask<T> task) {
  using Mma = MomentsMma<T, LAST, SAME, NARROW>;
  using Tile = typename Mma::Tile;
  // Only if a slab is one group: a group's result must not depend on its neighbours, to the last
  // bit.
  constexpr bool kMayBeExact = Mma::kLeftExact && !NARROW;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float center[kSlots];
  __shared__ double totals[kMayBeExact ? kSlots : 1];
  __shared__ __align__(16) unsigned char shift_room[Mma::kShiftBytes];

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
           ((stage * Mma::kTeams + team) * Mma::kSides + side) * Tile::kNumbers;
  };
  const auto fetch = [&](int round, int end) {
    const std::int64_t n = tile_of(round);
    const int side = thread / 32 % Mma::kTeamWarps;
    if (round < end && n < tiles)
      Tile::fetch(side == 0 ? task.left : task.right, first_channel, n * kTileSamples, count_of(n),
                  place(round % Mma::kStages, side));
    commit_copies();
  };

  await_previous();
  let_next_start();
  // Load the few samples for the shift first, or they would queue behind the tiles.
  ShiftSamples<T, kTileThreads> samples_for_shift;
  if constexpr (SAME) samples_for_shift.load(task.left, first_channel + thread % kSlots);
  const auto fetch_first = [&](int begin, int end) {
#pragma unroll 1
    for (int stage = 0; stage < Mma::kStages; ++stage) fetch(begin + stage, end);
  };
  fetch_first(0, rounds < kRunRounds ? rounds : kRunRounds);
  bool exact = false;
  if constexpr (SAME) {
    choose_shift<T, kTileThreads>(samples_for_shift, reinterpret_cast<SampledChannel*>(shift_room),
                                  center);
    if (chunk == 0 && thread < kSlots) task.shift[first_channel + thread] = center[thread];
  } else {
    bool fits = true;
    if (thread < kSlots) {
      const float mean = task.center != nullptr ? task.center[first_channel + thread] : 0.0f;
      if (kMayBeExact && task.slabs.group_size == kSlots && task.covariance.data != nullptr)
        fits = small_mean(mean, task.covariance[slab][thread * (task.covariance.row_stride + 1)]);
      else
        fits = kMayBeExact && task.center == nullptr;
      center[thread] = mean;
    }
    exact = __syncthreads_and(fits);
  }

  const auto run = [&](auto mma) {
    for (int begin = 0; begin < rounds; begin += kRunRounds) {
      const int end = rounds - begin < kRunRounds ? rounds : begin + kRunRounds;
      if (begin > 0) fetch_first(begin, end);
      for (int round = begin; round < end; ++round) {
        await_copies_but<Mma::kStages - 1>();
        sync_team<Mma::kTeamWarps>(team + 1);
        const std::int64_t n = tile_of(round);
        if (n < tiles) {
          const int count = count_of(n), stage = round % Mma::kStages;
#pragma unroll(SAME && !NARROW ? 1 : 2)  // as registers allow
          for (int step = 0; step < kTileSamples / mma.kStepSamples; ++step)
            mma.add(place(stage, 0), place(stage, Mma::kSides - 1), step, count);
        }
        sync_team<Mma::kTeamWarps>(team + 1);
        fetch(round + Mma::kStages, end);
      }
      __syncthreads();
      mma.fold(task, first_channel, task.sets + chunk * task.set_size,
               reinterpret_cast<float*>(memory), center, totals, begin == 0);
    }
  };
  if constexpr (kMayBeExact)
    if (exact) return run(MomentsMma<T, LAST, SAME, NARROW, true>(center));
  run(Mma(center));
}

}  // namespace keel::cuda
