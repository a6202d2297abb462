#pragma once

// The kernel around affine/mma.cuh: loads the coefficients, then each warp processes its tiles.

#include "cuda/affine/mma.cuh"
#include "cuda/launch/launch.h"

namespace keel::cuda {

/// A step is one input's contribution to a tile, as in affine_tiles. ADDS: the task has a residual,
/// which is one more step after the last input. Separate kernels, because the others would be up to
/// a sixth slower.
template <typename T, bool LAST, int D, bool ADDS>
__global__ void __launch_bounds__((AffineMma<T, LAST, D, ADDS>::kThreads), 1)
    affine_slabs(const __grid_constant__ AffineTask<T> task) {
  using Mma = AffineMma<T, LAST, D, ADDS>;
  using Tile = typename Mma::Tile;
  using Parts = CoefficientParts<LAST, D>;
  using Stored = Bfloat16Coefficients<D>;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float center[2][kSlots], bias[kSlots];
  auto* parts = reinterpret_cast<float*>(memory + Mma::kRingBytes);
  __shared__ unsigned small_slots[2];
  constexpr bool kMayBeExact = sizeof(T) == 2;

  const int thread = int(threadIdx.x), warp = thread / 32, terms = task.term_count;
  const int slabs = task.slabs.count, channel = int(blockIdx.x % unsigned(slabs)) * kSlots;
  const std::int64_t first_tile = blockIdx.x / unsigned(slabs) + task.stride * warp;
  const std::int64_t next_tile = task.stride * Mma::kWarps;
  const auto count_of = [&](std::int64_t n) {
    const std::int64_t remaining = task.layout.samples - n * Mma::kSamples;
    return int(remaining < Mma::kSamples ? remaining : Mma::kSamples);
  };
  const auto place = [&](int stage) {
    return reinterpret_cast<T*>(memory) + (stage * Mma::kWarps + warp) * Tile::kNumbers;
  };

  // The next term to fetch, and its tile. Term `terms` is the residual.
  const int end_term = ADDS ? terms + 1 : terms;
  std::int64_t fetched = first_tile;
  int fetched_term = 0;
  const auto fetch = [&](int stage) {
    if (fetched < task.tiles)
      Tile::fetch(ADDS && fetched_term == terms ? task.residual : task.terms[fetched_term].input,
                  channel, fetched * Mma::kSamples, count_of(fetched), place(stage));
    commit_copies();
    if (++fetched_term == end_term) fetched_term = 0, fetched += next_tile;
  };

  if (!task.inputs_ready) await_previous();
#pragma unroll 1
  for (int stage = 0; stage < Mma::kStages; ++stage) fetch(stage);
  if (task.inputs_ready) await_previous();
  let_next_start();
  const bool shares = thread < kTileThreads;  // whether this thread has a share of the coefficients
  typename Parts::Share share[2];
#pragma unroll
  for (int term = 0; term < 2; ++term)
    if (term < terms && shares) share[term].load(task.terms[term], channel);
  bool small = true;  // whether the mean of this thread's channel is small
#pragma unroll
  for (int term = 0; term < 2; ++term) {
    const AffineTerm<T>& of = task.terms[term];
    if (term >= terms || thread >= kSlots) continue;
    center[term][thread] = of.center != nullptr ? of.center[channel + thread] : 0;
    if (of.center != nullptr && kMayBeExact)
      small =
          of.covariance.data != nullptr &&
          small_mean(
              center[term][thread],
              of.covariance[(channel + thread) / D][thread % D * (of.covariance.row_stride + 1)]);
  }
  if (thread < kSlots)
    bias[thread] = task.bias != nullptr ? task.bias[channel + thread] / task.divisor : 0;
  const StoredGroups with_small_means{gathered_slots(small, small_slots), D};
  const auto without_center = [&](int term) {
    return task.terms[term].center == nullptr ? StoredGroups{~0ull, D} : with_small_means;
  };
#pragma unroll
  for (int term = 0; term < 2; ++term) {
    if (term >= terms || !shares) continue;
    float* const of_term = parts + term * Parts::kNumbers;
    const StoredGroups as_stored = without_center(term);
    share[term].for_each(task.terms[term], task.divisor, [&](unsigned i, unsigned j, float value) {
      if constexpr (Mma::kAsStored)
        if (as_stored.has(int(i))) return Stored::store(of_term, i, j, value);
      Parts::store(of_term, i, j, value);
    });
  }
  __syncthreads();
  if constexpr (kMayBeExact) {
    for (int term = 0; term < terms; ++term)
      if (shares && task.terms[term].center != nullptr)
        subtract_product<std::conditional_t<Mma::kAsStored, Stored, Parts>, D>(
            with_small_means, parts + term * Parts::kNumbers, center[term], bias);
    __syncthreads();
  }

  Mma mma;
  int stage = 0;
  const auto await_stage = [&] {
    await_copies_but<Mma::kStages - 1>();
    __syncwarp();
  };
  const auto leave_stage = [&] {
    __syncwarp();
    fetch(stage);
    stage = stage + 1 < Mma::kStages ? stage + 1 : 0;
  };
  for (std::int64_t n = first_tile; n < task.tiles; n += next_tile) {
    mma.clear();
    for (int term = 0; term < terms; ++term) {
      await_stage();
      mma.add(place(stage), center[term], parts + term * Parts::kNumbers, without_center(term));
      leave_stage();
    }
    if constexpr (ADDS) await_stage();
    mma.write_tile(task, bias, ADDS ? place(stage) : nullptr, channel, n * Mma::kSamples,
                   count_of(n));
    if constexpr (ADDS) leave_stage();
  }
}

}  // namespace keel::cuda
