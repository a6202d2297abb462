#pragma once

// output = sum of coefficient (input - center) + bias for groups of 4 or 8 channels in full slabs
// of 64. There is little to multiply, so this works in registers, without tiles in shared memory. A
// thread takes four samples of one group. Sums are in the order of affine_tiles, so results are the
// same to the last bit.

#include "cuda/affine/kernel.cuh"
#include "cuda/launch/launch.h"

namespace keel::cuda {

template <int D>
inline constexpr int kSmallThreads = 32 * (kSlots / D);
inline constexpr int kSmallSamples = 128;  // of a tile

/// Blocks per multiprocessor, such that 64 KB of float32 are in flight.
template <int TERMS>
inline constexpr int kSmallBlocks = 2 / TERMS;

template <typename T, int D, bool LAST>
struct AffineSmall {
  static constexpr int kGroups = kSlots / D;
  static constexpr int kOfGroup = D * D + 4;  // coefficients, and a gap against bank conflicts

  /// A run of consecutive numbers: the group's channels of one sample, or four samples of one
  /// channel.
  static constexpr int kRun = LAST ? D : 4, kRuns = LAST ? 4 : D;
  struct alignas(kRun * sizeof(T) < 16 ? kRun * sizeof(T) : 16) Run {
    T at[kRun];
  };

  static __device__ T number(const Run (&runs)[kRuns], int channel, int sample) {
    return runs[LAST ? sample : channel].at[LAST ? channel : sample];
  }

  /// The thread's first run in a tile, and the distance of its others.
  struct Place {
    std::int64_t offset, stride;
    int first, step;  // samples within the tile
  };
  static __device__ Place place(const SampleLayout& layout, std::int64_t tile, int channel) {
    const int thread = int(threadIdx.x);
    const int first = LAST ? thread / kGroups : thread % 32 * 4;
    const int group = LAST ? thread % kGroups : thread / 32;
    const auto start = layout.start(tile * kSmallSamples + first);
    return {layout.offset(start, 0, channel + group * D),
            (LAST ? 32 * layout.channels : layout.positions), first, LAST ? 32 : 0};
  }
};

/// ADDS: the task has a residual.
template <typename T, int D, bool LAST, int TERMS, bool ADDS>
__global__ void __launch_bounds__(kSmallThreads<D>, kSmallBlocks<TERMS>)
    affine_small(const __grid_constant__ AffineTask<T> task) {
  using Small = AffineSmall<T, D, LAST>;
  using Run = typename Small::Run;
  __shared__ __align__(16) float coefficients[TERMS][Small::kGroups * Small::kOfGroup];
  __shared__ float center[TERMS][kSlots], bias[kSlots];

  const int thread = int(threadIdx.x), slabs = task.slabs.count;
  const int channel = int(blockIdx.x % unsigned(slabs)) * kSlots;
  const int group = LAST ? thread % Small::kGroups : thread / 32;
  await_previous();
  let_next_start();
  for (int term = 0; term < TERMS; ++term) {
    const AffineTerm<T>& of = task.terms[term];
    for (int e = thread; e < kSlots * D; e += kSmallThreads<D>) {
      const int i = e / D % D, j = e % D, place = e / (D * D);
      const float* matrix = of.matrix[channel / D + place];
      const std::int64_t stride = of.matrix.row_stride;
      const float down = matrix[j * stride + i], along = matrix[i * stride + j];
      coefficients[term][place * Small::kOfGroup + i * D + j] =
          of.coefficient == Coefficient::plain        ? along
          : of.coefficient == Coefficient::transposed ? down
          : of.coefficient == Coefficient::doubled    ? 2 * along / task.divisor
                                                      : (along + down) / task.divisor;
    }
    if (thread < kSlots)
      center[term][thread] = of.center != nullptr ? of.center[channel + thread] : 0.0f;
  }
  if (thread < kSlots)
    bias[thread] = task.bias != nullptr ? task.bias[channel + thread] / task.divisor : 0.0f;
  __syncthreads();

  for (std::int64_t n = blockIdx.x / unsigned(slabs); n < task.tiles; n += task.stride) {
    __syncwarp();  // keeps the compiler from caching all coefficients in registers and spilling
    const auto place = Small::place(task.layout, n, channel);
    const std::int64_t remaining = task.layout.samples - n * kSmallSamples;
    const auto there = [&](int run) { return place.first + run * place.step < remaining; };
    Run in[TERMS][Small::kRuns];
#pragma unroll
    for (int term = 0; term < TERMS; ++term)
#pragma unroll
      for (int run = 0; run < Small::kRuns; ++run)
        if (there(run))
          in[term][run] = *reinterpret_cast<const Run*>(task.terms[term].input.data + place.offset +
                                                        run * place.stride);
    float out[D][4];
#pragma unroll
    for (int i = 0; i < D; ++i)
#pragma unroll
      for (int v = 0; v < 4; ++v) out[i][v] = bias[group * D + i];
#pragma unroll
    for (int term = 0; term < TERMS; ++term) {
      const float* m = coefficients[term] + group * Small::kOfGroup;
#pragma unroll
      for (int j = 0; j < D; j += 4) {
        float x[4][4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int v = 0; v < 4; ++v)
            x[k][v] = widened(Small::number(in[term], j + k, v)) - center[term][group * D + j + k];
#pragma unroll
        for (int i = 0; i < D; ++i) {
          const Pack<float> four = *reinterpret_cast<const Pack<float>*>(m + i * D + j);
#pragma unroll
          for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int v = 0; v < 4; ++v) out[i][v] += four.at[k] * x[k][v];
        }
      }
    }
#pragma unroll
    for (int run = 0; run < Small::kRuns; ++run) {
      if (!there(run)) continue;
      Run made, added;
      if constexpr (ADDS)
        added =
            *reinterpret_cast<const Run*>(task.residual.data + place.offset + run * place.stride);
#pragma unroll
      for (int k = 0; k < Small::kRun; ++k) {
        float sum = out[LAST ? k : run][LAST ? run : k];
        if constexpr (ADDS) sum += widened(added.at[k]);
        made.at[k] = written<T>(sum, task.least);
      }
      *reinterpret_cast<Run*>(task.output + place.offset + run * place.stride) = made;
    }
  }
}

}  // namespace keel::cuda
