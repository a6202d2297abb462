#pragma once

// Divided differences of any order, in extended precision: the recursive definition while the
// points are apart, the Taylor series about their mean once they are close.

#include <algorithm>
#include <cmath>
#include <vector>

#include "keel/spectral.h"

namespace keel::reference {

using Real = long double;

/// The k-th Taylor coefficient of f at x: f^(k)(x) / k!.
inline Real taylor_coefficient(const SpectralFunction& function, int k, Real x) {
  using Kind = SpectralFunction::Kind;
  const auto of_power = [&](Real p) {
    Real binomial = 1;
    for (int m = 0; m < k; ++m) binomial *= (p - m) / (m + 1);
    return binomial == 0 ? 0 : binomial * std::pow(x, p - k);
  };
  switch (function.kind) {
    case Kind::one:
      return k == 0 ? 1 : 0;
    case Kind::sqrt:
      return of_power(0.5L);
    case Kind::inv_sqrt:
      return of_power(-0.5L);
    case Kind::inv:
      return of_power(-1);
    case Kind::power:
      return of_power(function.exponent);
    case Kind::log:
      return k == 0 ? std::log(x) : (k % 2 ? 1 : -1) / (k * std::pow(x, Real(k)));
    case Kind::exp:
      return std::exp(x) / std::tgamma(Real(k + 1));
  }
  return 0;
}

/// f[points] for points in descending order and in the domain of f. 0 by convention if two or more
/// points are zeros at which f has no derivative.
inline Real divided_difference(const SpectralFunction& function, const std::vector<Real>& points) {
  const int order = int(points.size()) - 1;
  if (order == 0) return taylor_coefficient(function, 0, points[0]);
  if (std::count(points.begin(), points.end(), Real(0)) > 1 &&
      !std::isfinite(taylor_coefficient(function, 1, 0)))
    return 0;

  Real mean = 0;
  for (const Real x : points) mean += x / Real(order + 1);
  const Real spread = points.front() - points.back();
  const Real scale = function.kind == SpectralFunction::Kind::exp ? Real(1) : std::abs(mean);
  if (spread > scale / 64)
    return (divided_difference(function, {points.begin(), points.end() - 1}) -
            divided_difference(function, {points.begin() + 1, points.end()})) /
           spread;

  // f[x_0 .. x_r] = sum_k f^(k+r)(m)/(k+r)! h_k(x_0 - m, ..), h_k complete homogeneous of degree k.
  constexpr int kTerms = 12;
  std::vector<Real> h(kTerms, 0);
  h[0] = 1;
  for (const Real x : points)
    for (int k = 1; k < kTerms; ++k) h[std::size_t(k)] += (x - mean) * h[std::size_t(k - 1)];
  Real sum = 0;
  for (int k = 0; k < kTerms; ++k)
    if (h[std::size_t(k)] != 0)
      sum += taylor_coefficient(function, k + order, mean) * h[std::size_t(k)];
  return sum;
}

}  // namespace keel::reference
