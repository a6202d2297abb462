#pragma once

// Matrices are worked at unit size, so that nothing overflows and what is tiny is known to be nothing.

#include <cmath>
#include <limits>

namespace keel::cuda {

/// The power of two that brings a matrix to unit size, and whether it is finite.
template <typename T>
struct UnitScale {
  bool finite;
  int exponent = 0;
  T once, again;  ///< together 2^-exponent, which alone would not always be a number
  __device__ explicit UnitScale(T largest) : finite(largest <= std::numeric_limits<T>::max()) {
    int found = 0;
    if (finite) frexp(largest, &found);
    set(found);
  }
  __device__ void set(int chosen) {
    exponent = chosen;
    once = ldexp(T(1), -exponent / 2);
    again = ldexp(T(1), -exponent - -exponent / 2);
  }
  __device__ T down(T x) const { return x * once * again; }
  __device__ T up(T x) const { return ldexp(x, exponent); }
  /// A magnitude that fmax does not lose where x is NaN.
  __device__ static T magnitude(T x) {
    x = fabs(x);
    return x <= std::numeric_limits<T>::max() ? x : std::numeric_limits<T>::infinity();
  }
};

}  // namespace keel::cuda
