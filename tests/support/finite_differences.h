#pragma once

#include <functional>

#include "batch.h"

namespace keel::testing {

/// d/dt of `at`(t) at t = 0, by fourth-order central differences.
auto central_difference(const auto& at, double step) {
  return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
}

/// d/dt of `loss`(m + t direction) at t = 0.
inline double directional_derivative(const std::function<double(const Batch<double>&)>& loss,
                                     const Batch<double>& m, const Batch<double>& direction,
                                     double step) {
  const auto at = [&](double t) {
    Batch<double> moved = m;
    for (std::size_t k = 0; k < m.data.size(); ++k) moved.data[k] += t * direction.data[k];
    return loss(moved);
  };
  return central_difference(at, step);
}

inline double inner(const Batch<double>& a, const Batch<double>& b) {
  double sum = 0;
  for (std::size_t k = 0; k < a.data.size(); ++k) sum += a.data[k] * b.data[k];
  return sum;
}

}  // namespace keel::testing
