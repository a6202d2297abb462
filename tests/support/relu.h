#pragma once

// A separate ReLU, and what every backend's passes promise of theirs: the same bits as a separate one before or after them.

#include <cmath>
#include <limits>
#include <tuple>

#include "support/affine.h"
#include "support/backend.h"

namespace keel::testing {

/// max(0, x); NaN stays NaN.
template <typename T>
ActivationBuffer<T> relu(ActivationBuffer<T> x) {
  for (T& number : x.data)
    if (to_double(number) < 0) number = T{};
  return x;
}

/// x + y in the accumulator's type, rounded once more. For float32 and float64 this is the sum of a stage before it
/// rounds.
template <typename T>
ActivationBuffer<T> sum(ActivationBuffer<T> x, const ActivationBuffer<T>& y) {
  for (std::size_t k = 0; k < x.data.size(); ++k)
    x.data[k] = from_double<T>(
        double(Accumulator<T>(to_double(x.data[k])) + Accumulator<T>(to_double(y.data[k]))));
  return x;
}

/// Zeros where the gate is zero or less, like torch's ReLU for a gradient.
template <typename T>
ActivationBuffer<T> behind(ActivationBuffer<T> x, const ActivationBuffer<T>& gate) {
  for (std::size_t k = 0; k < x.data.size(); ++k)
    if (to_double(gate.data[k]) <= 0) x.data[k] = T{};
  return x;
}

/// Values that a gate can have: numbers of both signs, zeros of both signs and NaN.
template <typename T>
ActivationBuffer<T> random_gate(const ActivationShape& shape, Order order, std::uint64_t seed) {
  auto gate = converted<T>(random_activations(shape, seed, 0), order);
  for (std::size_t k = 0; k < gate.data.size(); k += 5) gate.data[k] = from_double<T>(0.0);
  for (std::size_t k = 3; k < gate.data.size(); k += 11) gate.data[k] = from_double<T>(-0.0);
  for (std::size_t k = 7; k < gate.data.size(); k += 13)
    gate.data[k] = from_double<T>(std::numeric_limits<double>::quiet_NaN());
  return gate;
}

/// The largest finite numbers and NaN where the gate is closed. None of them may have an effect.
template <typename T>
ActivationBuffer<T> poisoned_behind(ActivationBuffer<T> x, const ActivationBuffer<T>& gate) {
  for (std::size_t k = 0; k < x.data.size(); ++k)
    if (to_double(gate.data[k]) <= 0)
      x.data[k] = from_double<T>(k % 2 == 0 ? std::numeric_limits<double>::quiet_NaN()
                                            : std::numeric_limits<double>::infinity());
  return x;
}

/// How many numbers differ. NaN is NaN.
template <typename T>
std::int64_t different(const std::vector<T>& a, const std::vector<T>& b) {
  std::int64_t count = a.size() == b.size() ? 0 : 1;
  for (std::size_t k = 0; k < std::min(a.size(), b.size()); ++k)
    count += !(to_double(a[k]) == to_double(b[k]) ||
               (std::isnan(to_double(a[k])) && std::isnan(to_double(b[k]))));
  return count;
}

/// The passes for one shape, with activations `skip` numbers away from a 16-byte boundary.
template <typename B, typename T>
void check_passes_with_relu(const ActivationShape& shape, Order order, std::size_t skip,
                            double largest = 1) {
  using A = Accumulator<T>;
  using Numbers = typename B::template Numbers<A>;
  using There = ActivationsIn<B::template Numbers, T>;
  SCOPED_TRACE(name(shape, order) + ", " + std::to_string(skip) + " further on");
  const Coefficients<A> given(shape);
  Numbers matrix(given.matrix), gradient(given.gradient), mean(given.mean), bias(given.bias);
  const auto per_group = [&](Numbers& numbers) {
    return contiguous<A>(numbers.data(), shape.groups, shape.group_size());
  };
  There input(converted<T>(random_activations(shape, 32), order));
  const auto affine = [&](bool with_relu, const T* residual) {
    There output(shape, order, skip);
    const auto y = residual ? output.view().plus(residual) : output.view();
    B::template affine<T>(B::way(), per_group(matrix), mean.data(), bias.data(), input.view(),
                          y.with_relu(with_relu));
    return output.back();
  };
  const auto one = affine(false, nullptr), behind_it = affine(true, nullptr);
  EXPECT_EQ(different(behind_it.data, relu(one).data), 0);

  const auto numbers = converted<T>(random_activations(shape, 35, 0), order);
  There residual(numbers, skip);
  const T* const past = residual.view().data;
  const auto added = affine(false, past), both = affine(true, past), apart = sum(one, numbers);
  EXPECT_EQ(different(both.data, relu(added).data), 0);
  if (sizeof(T) > 2) {
    EXPECT_EQ(different(added.data, apart.data), 0);
  } else {
    for (std::size_t k = 0; k < apart.data.size(); ++k)  // rounded once more than the pass does
      ASSERT_NEAR(to_double(added.data[k]), to_double(apart.data[k]),
                  storage_error<T>(1.01 * (std::abs(to_double(one.data[k])) +
                                           2 * std::abs(to_double(apart.data[k])))));
  }

  const auto gate = random_gate<T>(shape, order, 33);
  auto slope = converted<T>(random_activations(shape, 34, 0), order);
  if (largest > 1)
    for (T& number : slope.data) number = from_double<T>(largest * to_double(number));
  slope = poisoned_behind(slope, gate);
  There open(gate, skip), poisoned(slope), masked(behind(slope, gate));
  const auto run = [&](const Activations<const T>& dL_doutput) {
    Numbers sum(given.mean), cross(given.matrix);
    B::template cross_moments<T>(B::way(), dL_doutput, input.view(), mean.data(), sum.data(),
                                 per_group(cross));
    There whole(shape, order), evaluation(shape, order);
    B::template affine_backward<T>(B::way(), per_group(matrix), dL_doutput, per_group(gradient),
                                   bias.data(), input.view(), mean.data(), whole.view());
    B::template affine_backward<T>(B::way(), per_group(matrix), dL_doutput, Matrices<const A>{},
                                   nullptr, Activations<const T>{}, nullptr, evaluation.view());
    return std::tuple(sum.back(), cross.back(), whole.back().data, evaluation.back().data);
  };
  const Activations<const T> gated = poisoned.view();
  const auto [sum, cross, whole, evaluation] = run(gated.gated(open.view().data));
  const auto [sum_of, cross_of, whole_of, evaluation_of] = run(masked.view());
  EXPECT_TRUE(same_bits(sum, sum_of));
  EXPECT_TRUE(same_bits(cross, cross_of));
  EXPECT_TRUE(same_bits(whole, whole_of));
  EXPECT_TRUE(same_bits(evaluation, evaluation_of));
}

}  // namespace keel::testing
