#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "keel/activations.h"
#include "support/random.h"

namespace keel::testing {

inline constexpr Order kOrders[] = {Order::contiguous, Order::channels_last};
using ElementTypes = ::testing::Types<float, double, Half, BFloat16>;

inline double to_double(float x) { return x; }
inline double to_double(double x) { return x; }
inline double to_double(Half x) { return to_float(x); }
inline double to_double(BFloat16 x) { return to_float(x); }

template <typename T>
T from_double(double x) {
  return T(x);
}
template <>
inline Half from_double<Half>(double x) {
  return to_half(float(x));
}
template <>
inline BFloat16 from_double<BFloat16>(double x) {
  return to_bfloat16(float(x));
}

struct ActivationShape {
  std::int64_t batch, channels, positions, groups;
  std::int64_t samples() const { return batch * positions; }
  std::int64_t group_size() const { return channels / groups; }
};

inline std::string name(const ActivationShape& shape, Order order) {
  return std::string("(") + std::to_string(shape.batch) + ", " + std::to_string(shape.channels) +
         ", " + std::to_string(shape.positions) + ") in " + std::to_string(shape.groups) +
         " groups" + (order == Order::channels_last ? " channels_last" : "");
}

/// Odd sizes around every block, tile and vector of the kernels, and plain ones.
inline const std::vector<ActivationShape>& activation_shapes() {
  static const std::vector<ActivationShape> shapes = {
      {1, 1, 1, 1},    {2, 1, 3, 1},    {5, 3, 1, 3},     {7, 6, 1, 2},    {300, 8, 1, 2},
      {3, 8, 25, 8},   {2, 10, 49, 5},  {5, 15, 9, 5},    {4, 20, 33, 5},  {2, 14, 150, 2},
      {1, 24, 700, 3}, {9, 64, 16, 16}, {3, 64, 67, 4},   {2, 15, 31, 1},  {2, 16, 64, 1},
      {2, 34, 65, 2},  {3, 31, 40, 1},  {1, 33, 257, 1},  {40, 63, 2, 1},  {2, 64, 144, 1},
      {1, 65, 300, 1}, {3, 96, 35, 1},  {2, 128, 20, 1},  {2, 129, 33, 1}, {1, 200, 45, 1},
      {9, 260, 1, 2},  {1, 300, 30, 1}, {530, 48, 1, 12}, {1, 512, 11, 1}, {1030, 2, 3, 1}};
  return shapes;
}

/// Owns activations of one type in one order.
template <typename T>
struct ActivationBuffer {
  std::vector<T> data;
  ActivationShape shape;
  Order order;

  ActivationBuffer(ActivationShape s, Order o)
      : data(std::size_t(s.samples() * s.channels)), shape(s), order(o) {}
  Activations<T> view() {
    return {data.data(), shape.batch, shape.channels, shape.positions, shape.groups, order};
  }
  Activations<const T> view() const {
    return {data.data(), shape.batch, shape.channels, shape.positions, shape.groups, order};
  }
  T& at(std::int64_t sample, std::int64_t channel) {
    return data[std::size_t(view().index(sample, channel))];
  }
  const T& at(std::int64_t sample, std::int64_t channel) const {
    return data[std::size_t(view().index(sample, channel))];
  }
};

/// The same values in another type (rounded) or order.
template <typename To, typename From>
ActivationBuffer<To> converted(const ActivationBuffer<From>& from, Order order) {
  ActivationBuffer<To> to(from.shape, order);
  for (std::int64_t k = 0; k < from.shape.samples(); ++k)
    for (std::int64_t c = 0; c < from.shape.channels; ++c)
      to.at(k, c) = from_double<To>(to_double(from.at(k, c)));
  return to;
}

/// The rows [first, first + count) of a batch.
template <typename T>
ActivationBuffer<T> rows(const ActivationBuffer<T>& whole, std::int64_t first, std::int64_t count) {
  ActivationBuffer<T> part({count, whole.shape.channels, whole.shape.positions, whole.shape.groups},
                           whole.order);
  const std::int64_t row = whole.shape.channels * whole.shape.positions;
  std::copy_n(whole.data.begin() + first * row, count * row, part.data.begin());
  return part;
}

/// Correlated channels, each with its own mean and deviation.
inline ActivationBuffer<double> random_activations(ActivationShape shape, std::uint64_t seed,
                                                   double mean = 1.0) {
  Random random(seed);
  ActivationBuffer<double> x(shape, Order::contiguous);
  std::vector<double> means, scales;
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    means.push_back(mean * random.normal());
    scales.push_back(0.5 + random.uniform());
  }
  for (std::int64_t k = 0; k < shape.samples(); ++k) {
    const double common = random.normal();
    for (std::int64_t c = 0; c < shape.channels; ++c)
      x.at(k, c) =
          means[std::size_t(c)] + scales[std::size_t(c)] * (0.5 * common + random.normal());
  }
  return x;
}

}  // namespace keel::testing
