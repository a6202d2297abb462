#pragma once

// The kernel around affine/mma.cuh: loads the coefficients, then each warp processes its tiles.

#include "cuda/affine/mma.cuh"
#include "cuda/launch/early_start.cuh"

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
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float center[2][kSlots], bias[kSlots];
  auto* parts = reinterpret_cast<float*>(memory + Mma::kRingBytes);
  // Only if a slab is one group: a group's result must not depend on its neighbours, to the last
  // bit.
  constexpr bool kMayBeExact = sizeof(T) == 2 && D == kSlots;
  constexpr bool kNative = kMayBeExact && LAST && std::is_same_v<T, BFloat16>;

  const int thread = int(threadIdx.x), warp = thread / 32, terms = task.term_count;
  const int slabs = task.slabs.count, channel = int(blockIdx.x % unsigned(slabs)) * kSlots;
  const std::int64_t first_tile = blockIdx.x / unsigned(slabs) + task.stride * warp;
  const std::int64_t next_tile = task.stride * Mma::kWarps;
  const auto count_of = [&](std::int64_t n) {
    const std::int64_t left = task.layout.samples - n * Mma::kSamples;
    return int(left < Mma::kSamples ? left : Mma::kSamples);
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
    if (of.center != nullptr)
      small = kMayBeExact && of.covariance.data != nullptr &&
              small_mean(center[term][thread],
                         of.covariance[channel / D][thread * (of.covariance.row_stride + 1)]);
  }
  if (thread < kSlots)
    bias[thread] = task.bias != nullptr ? task.bias[channel + thread] / task.divisor : 0;
  const bool all_small = __syncthreads_and(small), native = kNative && all_small;
#pragma unroll
  for (int term = 0; term < 2; ++term) {
    if (term >= terms || !shares) continue;
    float* const of_term = parts + term * Parts::kNumbers;
    if constexpr (kNative)
      if (native) {
        Bfloat16Coefficients::store(share[term], task.terms[term], task.divisor, of_term);
        continue;
      }
    share[term].store(task.terms[term], task.divisor, of_term);
  }
  __syncthreads();
  if constexpr (kMayBeExact) {
    for (int term = 0; term < terms; ++term) {
      if (!all_small || !shares || task.terms[term].center == nullptr) continue;
      const float* const of_term = parts + term * Parts::kNumbers;
      if (native)
        subtract_product<Bfloat16Coefficients>(of_term, center[term], bias);
      else
        subtract_product<Parts>(of_term, center[term], bias);
    }
    __syncthreads();
  }

  Mma mma;
  const auto add = [&](int term, const T* tile) {
    const float* const of_term = parts + term * Parts::kNumbers;
    if constexpr (kNative)
      if (native) return mma.add_bfloat16(tile, of_term);
    if (sizeof(T) == 2 && (all_small || task.terms[term].center == nullptr))
      mma.template add<sizeof(T) == 2>(tile, center[term], of_term);
    else
      mma.template add<false>(tile, center[term], of_term);
  };
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
      add(term, place(stage));
      leave_stage();
    }
    if constexpr (ADDS) await_stage();
    mma.write_tile(task, bias, ADDS ? place(stage) : nullptr, channel, n * Mma::kSamples,
                   count_of(n));
    if constexpr (ADDS) leave_stage();
  }
}

}  // namespace keel::cuda
