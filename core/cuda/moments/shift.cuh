#pragma once

// A shift near every channel's mean, from a few samples spread over all of them. If these are q of m,
// their average is off by at most sqrt(m / q) standard deviations, whatever the data. Every block finds
// the same one for itself: the samples lie in the L2 cache, and no launch has to come first.

#include <cfloat>
#include <cmath>

#include "cuda/activations/stage.cuh"

namespace keel::cuda {

inline constexpr int kShiftSamples = 16;

struct SampledChannel {
  double sum = 0, count = 0, low = DBL_MAX, high = -DBL_MAX;

  __device__ void add(double x) {
    if (!isfinite(x)) return;
    sum += x;
    count += 1;
    low = fmin(low, x);
    high = fmax(high, x);
  }
  __device__ void add(const SampledChannel& other) {
    sum += other.sum;
    count += other.count;
    low = fmin(low, other.low);
    high = fmax(high, other.high);
  }
  /// The average, with no more digits than the spread asks for: x - shift then has no more digits than
  /// x, and sums of coarse values (16 bit types, integers) round seldom, and not all one way.
  __device__ double shift() const {
    if (count == 0) return 0;
    if (low == high) return low;
    const double unit = ldexp(1.0, ilogb(high - low) - 2);
    if (unit == 0 || isinf(unit)) return low;  // float64 at the ends of its range
    return nearbyint(sum / count / unit) * unit;
  }
};

inline KEEL_HOST_DEVICE std::int64_t sample_for_shift(std::int64_t samples, int q) {
  constexpr double kGolden = 0.6180339887498949;  // spreads without resonating with the image width
  if (samples <= kShiftSamples) return q;
  const double spread = (q + 0.5) * kGolden;
  const std::int64_t sample = std::int64_t((spread - std::int64_t(spread)) * double(samples));
  return sample < samples ? sample : samples - 1;
}

/// A thread's samples of the channel in slot threadIdx.x % kSlots.
template <typename T, int THREADS>
struct ShiftSamples {
  static constexpr int kShares = THREADS / kSlots, kEach = kShiftSamples / kShares;
  double values[kEach];

  /// All loads before the first use, or each would wait for the one before.
  __device__ void load(const Source<T>& x, int channel) {
    const int share = int(threadIdx.x) / kSlots;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int q = share + n * kShares;
      values[n] = INFINITY;  // which is left out
      if (channel < 0 || q >= x.layout.samples) continue;
      const auto start = x.layout.start(sample_for_shift(x.layout.samples, q));
      values[n] = double(widened(x.data[x.layout.offset(start, 0, channel)]));
    }
  }
};

/// Fills center (one for each slot) with the whole block, by way of THREADS SampledChannels of shared
/// memory. All threads may read center, and no longer need the room, when this returns.
template <typename T, int THREADS>
__device__ void choose_shift(const ShiftSamples<T, THREADS>& samples, SampledChannel* room,
                             Accumulator<T>* center) {
  const int slot = int(threadIdx.x) % kSlots, share = int(threadIdx.x) / kSlots;
  SampledChannel sampled;
#pragma unroll
  for (const double value : samples.values) sampled.add(value);
  room[threadIdx.x] = sampled;
  __syncthreads();
  if (share == 0) {
    for (int other = 1; other < samples.kShares; ++other) sampled.add(room[other * kSlots + slot]);
    center[slot] = Accumulator<T>(sampled.shift());
  }
  __syncthreads();
}

template <typename T, int THREADS>
__device__ void choose_shift(const Source<T>& x, const int* channel, SampledChannel* room,
                             Accumulator<T>* center) {
  ShiftSamples<T, THREADS> samples;
  samples.load(x, channel[threadIdx.x % kSlots]);
  choose_shift<T, THREADS>(samples, room, center);
}

}  // namespace keel::cuda
