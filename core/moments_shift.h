#pragma once

// A shift near every channel's mean, from a few samples spread over all m. With q samples, their
// average is off by at most sqrt(m / q) standard deviations, whatever the data.

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace keel {

inline constexpr int kShiftSamples = 16;

/// The q-th of these samples.
KEEL_HOST_DEVICE inline std::int64_t sample_for_shift(std::int64_t samples, int q) {
  constexpr double kGolden = 0.6180339887498949;  // spreads without resonating with the image width
  if (samples <= kShiftSamples) return q;
  const double turns = (q + 0.5) * kGolden;
  const std::int64_t sample = std::int64_t((turns - double(std::int64_t(turns))) * double(samples));
  return sample < samples ? sample : samples - 1;
}

/// Statistics of the sampled values of one channel.
struct SampledChannel {
  double sum = 0, count = 0, low = DBL_MAX, high = -DBL_MAX;

  KEEL_HOST_DEVICE void add(double x) {
    if (!std::isfinite(x)) return;
    sum += x;
    count += 1;
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
  KEEL_HOST_DEVICE void add(const SampledChannel& other) {
    sum += other.sum;
    count += other.count;
    low = other.low < low ? other.low : low;
    high = other.high > high ? other.high : high;
  }

  /// The average, rounded to the precision that the spread needs. Then x - shift has no more digits
  /// than x, and sums of coarse values (16-bit types, integers) are rarely rounded, and not all in
  /// the same direction.
  KEEL_HOST_DEVICE double shift() const {
    if (count == 0) return 0;
    if (low == high) return low;
    const double unit = std::ldexp(1.0, std::ilogb(high - low) - 2);
    if (unit == 0 || std::isinf(unit)) return low;  // float64 at the ends of its range
    return std::nearbyint(sum / count / unit) * unit;
  }
  /// Whether the average is at most as large as the spread, which is about 3.5 deviations if the
  /// values are normal.
  KEEL_HOST_DEVICE bool about_zero() const {
    return count == 0 || std::fabs(sum / count) <= high - low;
  }
};

}  // namespace keel
