#pragma once

// All tolerances of the core's tests, scaled by the type's rounding and the size of what is compared.

#include <cmath>
#include <cstdint>
#include <limits>

namespace keel::testing {

/// The larger of the two, or NaN if one is NaN, so that a bound on it fails.
inline double larger(double a, double b) { return std::isnan(a) || b <= a ? a : b; }

template <typename T>
inline constexpr double kEps = double(std::numeric_limits<T>::epsilon());

/// The rounding error of sums and products over n terms, for a quantity of the given magnitude.
template <typename T>
double rounding(std::int64_t n, double magnitude) {
  return 8 * double(n + 2) * kEps<T> * magnitude;
}

/// Bound on residual and orthogonality of an eigendecomposition: four times LAPACK's, plus four roundings of a unit
/// column in case LAPACK happens to make no error.
template <typename T>
double eigh_bound(double by_lapack) {
  return 4 * by_lapack + 4 * kEps<T>;
}

/// Bound for fourth-order central differences in float64 of a smooth function of the given magnitude.
inline double by_differences(double magnitude) { return 1e-8 * magnitude; }

/// Bound for two float64 evaluations of the same expression in different order.
inline constexpr double kSameFormula = 1e-12;

}  // namespace keel::testing
