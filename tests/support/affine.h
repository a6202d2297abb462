#pragma once

// Shared by the tests of affine on every device: the inputs of a pass, and its error bounds.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "keel/activations.h"
#include "keel/matrices.h"
#include "support/activations.h"
#include "support/batch.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace keel::testing {

/// Half a unit in the last place of the stored type, relative, and its smallest step.
template <typename T>
double storage_error(double magnitude) {
  if (std::is_same_v<T, BFloat16>) return 0x1p-8 * magnitude;
  if (std::is_same_v<T, Half>) return 0x1p-11 * magnitude + 0x1p-24;
  return 0;
}

/// The error of adding `terms` products one after another: roundings of the running sum, of either sign, on a result
/// of the given size.
template <typename A>
double summation_error(std::int64_t terms, double size) {
  return 2 * (4 + std::sqrt(double(terms))) * kEps<A> * size;
}

/// `expected`, up to the rounding of a sum of `terms` products of the given size and of storing it.
template <typename T>
void expect_close(const ActivationBuffer<T>& got, const ActivationBuffer<double>& expected,
                  std::int64_t terms, double size) {
  for (std::size_t i = 0; i < got.data.size(); ++i)
    ASSERT_NEAR(to_double(got.data[i]), expected.data[i],
                summation_error<Accumulator<T>>(terms, size) +
                    storage_error<T>(std::abs(expected.data[i]) + size / 100))
        << i;
}

/// All inputs of a pass besides activations.
template <typename A>
struct Coefficients {
  std::vector<A> matrix, gradient, mean, bias;
  ActivationShape shape;
  explicit Coefficients(const ActivationShape& s) : shape(s) {
    const std::int64_t entries = s.channels * s.group_size();
    matrix = as<A>(Random(21).normals(entries));
    gradient = as<A>(Random(22).normals(entries));
    mean = as<A>(Random(23).normals(s.channels));
    bias = as<A>(Random(24).normals(s.channels));
  }
  template <typename B>
  explicit Coefficients(const Coefficients<B>& other)
      : matrix(as<A>(other.matrix)),
        gradient(as<A>(other.gradient)),
        mean(as<A>(other.mean)),
        bias(as<A>(other.bias)),
        shape(other.shape) {}
  Matrices<const A> per_group(const std::vector<A>& data) const {
    return contiguous(data.data(), shape.groups, shape.group_size());
  }
};

}  // namespace keel::testing
