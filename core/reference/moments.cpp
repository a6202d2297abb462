#include "keel/moments.h"

#include <limits>

#include "activations_check.h"
#include "reference/gated.h"

namespace keel::reference {

void moments(Activations<const double> input, double* mean, Matrices<double> covariance) {
  check_moments("keel::reference::moments", input, mean, covariance);
  const std::int64_t m = input.samples(), d = input.group_size();
  const double count = m > 0 ? double(m) : std::numeric_limits<double>::quiet_NaN();
  const auto x = [&](std::int64_t sample, std::int64_t channel) {
    return input.data[input.index(sample, channel)];
  };
  for (std::int64_t c = 0; c < input.channels; ++c) {
    double sum = 0;
    for (std::int64_t k = 0; k < m; ++k) sum += x(k, c);
    mean[c] = sum / count;
  }
  for (std::int64_t c = 0; c < input.channels; ++c) {
    const std::int64_t group = c / d;
    for (std::int64_t j = 0; j < d; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < m; ++k)
        sum += (x(k, c) - mean[c]) * (x(k, group * d + j) - mean[group * d + j]);
      covariance[group][c % d * covariance.row_stride + j] = sum / count;
    }
  }
}

void cross_moments(Activations<const double> left, Activations<const double> right,
                   const double* center, double* sum, Matrices<double> cross) {
  check_cross_moments("keel::reference::cross_moments", left, right, sum, cross);
  const std::int64_t m = left.samples(), d = left.group_size();
  for (std::int64_t c = 0; c < left.channels; ++c) {
    const std::int64_t group = c / d;
    sum[c] = 0;
    for (std::int64_t k = 0; k < m; ++k) sum[c] += read(left, k, c);
    for (std::int64_t j = 0; j < d; ++j) {
      const std::int64_t channel = group * d + j;
      const double shift = center != nullptr ? center[channel] : 0;
      double total = 0;
      for (std::int64_t k = 0; k < m; ++k)
        total += read(left, k, c) * (right.data[right.index(k, channel)] - shift);
      cross[group][c % d * cross.row_stride + j] = total;
    }
  }
}

}  // namespace keel::reference
