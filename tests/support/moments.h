#pragma once

// Shared by the tests of moments on every device.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "keel/matrices.h"
#include "support/activations.h"
#include "support/tolerance.h"

namespace keel::testing {

/// One number per channel and one matrix per group.
template <typename A>
struct Moments {
  std::vector<A> mean, covariance;
  ActivationShape shape;

  explicit Moments(const ActivationShape& s)
      : mean(std::size_t(s.channels), A(77)),
        covariance(std::size_t(s.channels * s.group_size()), A(77)),
        shape(s) {}
  Matrices<A> matrices() { return contiguous(covariance.data(), shape.groups, shape.group_size()); }
  double entry(std::int64_t group, std::int64_t i, std::int64_t j) const {
    const std::int64_t d = shape.group_size();
    return double(covariance[std::size_t((group * d + i) * d + j)]);
  }
  double deviation(std::int64_t channel) const {
    const std::int64_t d = shape.group_size();
    return std::sqrt(entry(channel / d, channel % d, channel % d));
  }
};

/// Within a few roundings of the accumulator, relative to the deviations for products and to the mean for means.
template <typename A>
void expect_close(const Moments<A>& got, const Moments<double>& expected) {
  const ActivationShape& shape = expected.shape;
  const std::int64_t d = shape.group_size();
  for (std::int64_t c = 0; c < shape.channels; ++c)
    ASSERT_NEAR(double(got.mean[std::size_t(c)]), expected.mean[std::size_t(c)],
                rounding<A>(0, std::abs(expected.mean[std::size_t(c)]) + expected.deviation(c)))
        << "mean of channel " << c;
  for (std::int64_t g = 0; g < shape.groups; ++g)
    for (std::int64_t i = 0; i < d; ++i) {
      ASSERT_GE(got.entry(g, i, i), 0);
      for (std::int64_t j = 0; j < d; ++j) {
        ASSERT_NEAR(got.entry(g, i, j), expected.entry(g, i, j),
                    rounding<A>(2, expected.deviation(g * d + i) * expected.deviation(g * d + j)))
            << "covariance " << g << ", " << i << ", " << j;
        ASSERT_EQ(got.entry(g, i, j), got.entry(g, j, i));
      }
    }
}

}  // namespace keel::testing
