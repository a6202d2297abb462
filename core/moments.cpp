#include "keel/moments.h"

#include <algorithm>
#include <limits>

#include "shape.h"

namespace keel {

void rebase(PartialMoments& moments, const double* shift) {
  const std::int64_t d = moments.channels / moments.groups;
  const double count = double(moments.count);
  for (std::int64_t i = 0; i < moments.channels; ++i) {
    const std::int64_t group = i / d * d;
    const double move_i = moments.shift[i] - shift[i];
    for (std::int64_t j = group; j < group + d; ++j) {
      const double move_j = moments.shift[j] - shift[j];
      moments.second[i * d + j - group] +=
          moments.sum[i] * move_j + move_i * moments.sum[j] + count * (move_i * move_j);
    }
  }
  for (std::int64_t i = 0; i < moments.channels; ++i) {
    moments.sum[i] += count * (moments.shift[i] - shift[i]);
    moments.shift[i] = shift[i];
  }
}

void combine(PartialMoments& into, const PartialMoments& from) {
  require(into.channels == from.channels && into.groups == from.groups,
          "keel::combine: expected moments of " + text(into.channels) + " channels in " +
              text(into.groups) + " groups, got " + text(from.channels) + " in " +
              text(from.groups));
  if (from.count == 0) return;
  const std::int64_t d = into.channels / into.groups;
  if (into.count == 0) {
    std::copy_n(from.shift, into.channels, into.shift);
    std::fill_n(into.sum, into.channels, 0.0);
    std::fill_n(into.second, into.channels * d, 0.0);
  }
  const double count = double(from.count);
  for (std::int64_t i = 0; i < into.channels; ++i) {
    const std::int64_t group = i / d * d;
    const double move_i = from.shift[i] - into.shift[i];
    for (std::int64_t j = group; j < group + d; ++j) {
      const double move_j = from.shift[j] - into.shift[j];
      const std::int64_t at = i * d + j - group;
      into.second[at] += from.second[at] +
                         (from.sum[i] * move_j + move_i * from.sum[j] + count * (move_i * move_j));
    }
    into.sum[i] += from.sum[i] + count * move_i;
  }
  into.count += from.count;
}

template <typename T>
void mean_and_covariance(const PartialMoments& moments, T* mean, Matrices<T> covariance) {
  const std::int64_t d = moments.channels / moments.groups;
  require_same_shape("keel::mean_and_covariance", "covariance",
                     contiguous<T>(nullptr, moments.groups, d), covariance);
  const double count =
      moments.count > 0 ? double(moments.count) : std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t i = 0; i < moments.channels; ++i) {
    const std::int64_t group = i / d;
    const double off_i = moments.sum[i] / count;
    mean[i] = T(moments.shift[i] + off_i);
    for (std::int64_t j = group * d; j <= i; ++j) {
      const double off_j = moments.sum[j] / count;
      double entry = moments.second[i * d + j - group * d] / count - off_i * off_j;
      if (i == j && entry < 0) entry = 0;
      T* matrix = covariance[group];
      matrix[(i - group * d) * covariance.row_stride + j - group * d] = T(entry);
      matrix[(j - group * d) * covariance.row_stride + i - group * d] = T(entry);
    }
  }
}
template void mean_and_covariance(const PartialMoments&, float*, Matrices<float>);
template void mean_and_covariance(const PartialMoments&, double*, Matrices<double>);

}  // namespace keel
