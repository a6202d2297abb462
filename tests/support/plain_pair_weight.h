#pragma once

// W_ij of each rule, exactly as in the mathematics. core/formulas/pair_weight.h is tested against it. i < j, l_i >= l_j.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "keel/gradient_rule.h"

namespace keel::testing {

using Real = long double;

inline Real plain_geometric_sum(int terms, Real q) {
  Real sum = 0, power = 1;
  for (int k = 0; k < terms; ++k, power *= q) sum += power;
  return sum;
}

struct PlainPairWeight {
  std::int64_t n;
  Real largest;  // |eigenvalue|
  Real l_i, l_j, b_ij, b_ji;

  Real operator()(const Analytic&) const { return (b_ji - b_ij) / 2 / (l_i - l_j); }

  /// The value of larger magnitude is found first. It has T terms, the other T - 1.
  Real operator()(const PowerIteration& rule) const {
    return by_series(rule.terms, rule.terms - 1);
  }

  Real operator()(const Taylor& rule) const { return by_series(rule.terms, rule.terms); }

  Real operator()(const Lorentzian& rule) const {
    if (largest == 0) return 0;
    const Real gap = l_i / largest - l_j / largest;
    const Real root = std::hypot(gap, rule.width);  // its square may underflow
    return (b_ji - b_ij) / 2 * (gap / root) / root / largest;
  }

  Real operator()(const Masked& rule) const {
    const Real tolerance =
        rule.tolerance.value_or(10 * std::sqrt(double(n)) * std::numeric_limits<double>::epsilon());
    const Real gap = l_i - l_j;
    return gap <= tolerance * largest ? 0 : (b_ji - b_ij) / 2 / gap;
  }

 private:
  Real by_series(int leader_terms, int follower_terms) const {
    if (std::abs(l_i) >= std::abs(l_j)) {
      if (l_i == 0) return 0;
      const Real q = l_j / l_i;
      return (plain_geometric_sum(leader_terms, q) * b_ji -
              plain_geometric_sum(follower_terms, q) * b_ij) /
             2 / l_i;
    }
    const Real q = l_i / l_j;
    return (plain_geometric_sum(leader_terms, q) * b_ij -
            plain_geometric_sum(follower_terms, q) * b_ji) /
           2 / l_j;
  }
};

inline double largest_magnitude(std::int64_t n, const double* values) {
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

}  // namespace keel::testing
