#pragma once

// A separate ReLU, for comparison with stages that include it.

#include <limits>

#include "support/activations.h"

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

}  // namespace keel::testing
