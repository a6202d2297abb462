#pragma once

// The shift of moments (core/moments_shift.h). Every block computes it itself: the samples are in
// the L2 cache, and no extra launch is needed.

#include <cmath>

#include "cuda/activations/stage.cuh"
#include "moments_shift.h"

namespace keel::cuda {

/// A thread's samples of the channel in slot threadIdx.x % kSlots.
template <typename T, int THREADS>
struct ShiftSamples {
  static constexpr int kShares = THREADS / kSlots, kEach = kShiftSamples / kShares;
  double values[kEach];

  /// Issues all loads before the first use, so that their latencies overlap.
  __device__ void load(const Source<T>& x, int channel) {
    const int share = int(threadIdx.x) / kSlots;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int q = share + n * kShares;
      values[n] = INFINITY;  // which is ignored
      if (channel < 0 || q >= x.layout.samples) continue;
      const auto start = x.layout.start(sample_for_shift(x.layout.samples, q));
      values[n] = double(widened(x.data[x.layout.offset(start, 0, channel)]));
    }
  }

  /// Returns the statistics of slot threadIdx.x to the first kSlots threads. Every thread calls it,
  /// with `room` for one of each thread.
  __device__ SampledChannel gather(SampledChannel* room) const {
    SampledChannel sampled;
#pragma unroll
    for (const double value : values) sampled.add(value);
    room[threadIdx.x] = sampled;
    __syncthreads();
    if (threadIdx.x < kSlots)
#pragma unroll
      for (int other = 1; other < kShares; ++other)
        sampled.add(room[other * kSlots + int(threadIdx.x)]);
    return sampled;
  }
};

/// The whole block computes `center` (one per slot), using THREADS SampledChannels of shared
/// memory. When this returns, all threads may read `center`, and `room` is free.
template <typename T, int THREADS>
__device__ void choose_shift(const Source<T>& x, const int* channel, SampledChannel* room,
                             Accumulator<T>* center) {
  ShiftSamples<T, THREADS> samples;
  samples.load(x, channel[threadIdx.x % kSlots]);
  const SampledChannel sampled = samples.gather(room);
  if (threadIdx.x < kSlots) center[threadIdx.x] = Accumulator<T>(sampled.shift());
  __syncthreads();
}

}  // namespace keel::cuda
