#pragma once

// W_ij of each rule, word for word as the mathematics has it. i < j, l_i >= l_j.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "keel/gradient_rule.h"

namespace keel::reference {

inline double geometric_sum(int terms, double q) {
  double sum = 0, power = 1;
  for (int k = 0; k < terms; ++k, power *= q) sum += power;
  return sum;
}

struct PairWeight {
  std::int64_t n;
  double largest;  // |eigenvalue|
  double l_i, l_j, b_ij, b_ji;

  double operator()(const Analytic&) const { return (b_ji - b_ij) / 2 / (l_i - l_j); }

  /// The member of larger magnitude is found first: it takes T terms, the other T - 1.
  double operator()(const PowerIteration& rule) const {
    return by_series(rule.terms, rule.terms - 1);
  }

  double operator()(const Taylor& rule) const { return by_series(rule.terms, rule.terms); }

  double operator()(const Lorentzian& rule) const {
    if (largest == 0) return 0;
    const double gap = l_i / largest - l_j / largest;
    const double root = std::hypot(gap, rule.width);  // its square may underflow
    return (b_ji - b_ij) / 2 * (gap / root) / root / largest;
  }

  double operator()(const Masked& rule) const {
    const double tolerance =
        rule.tolerance.value_or(10 * std::sqrt(double(n)) * std::numeric_limits<double>::epsilon());
    const double gap = l_i - l_j;
    return gap <= tolerance * largest ? 0 : (b_ji - b_ij) / 2 / gap;
  }

 private:
  double by_series(int leader_terms, int follower_terms) const {
    if (std::abs(l_i) >= std::abs(l_j)) {
      if (l_i == 0) return 0;
      const double q = l_j / l_i;
      return (geometric_sum(leader_terms, q) * b_ji - geometric_sum(follower_terms, q) * b_ij) / 2 /
             l_i;
    }
    const double q = l_i / l_j;
    return (geometric_sum(leader_terms, q) * b_ij - geometric_sum(follower_terms, q) * b_ji) / 2 /
           l_j;
  }
};

inline double largest_magnitude(std::int64_t n, const double* values) {
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

}  // namespace keel::reference
