#pragma once

// Matrices are worked at unit size, so that nothing overflows and what is tiny is known to be nothing.

#include <cmath>
#include <limits>

#include "host_device.h"

namespace keel::cuda {

/// The power of two that brings a matrix to unit size, and whether it is finite.
template <typename T>
struct UnitScale {
  bool finite;
  int exponent = 0;
  T once, again;  ///< together 2^-exponent, which alone would not always be a number
  KEEL_HOST_DEVICE explicit UnitScale(T largest)
      : finite(largest <= std::numeric_limits<T>::max()) {
    int found = 0;
    if (finite) std::frexp(largest, &found);
    set(found);
  }
  KEEL_HOST_DEVICE void set(int chosen) {
    exponent = chosen;
    once = std::ldexp(T(1), -exponent / 2);
    again = std::ldexp(T(1), -exponent - -exponent / 2);
  }
  KEEL_HOST_DEVICE T down(T x) const { return x * once * again; }
  KEEL_HOST_DEVICE T up(T x) const { return std::ldexp(x, exponent); }
  /// A magnitude that fmax does not lose where x is NaN.
  KEEL_HOST_DEVICE static T magnitude(T x) {
    x = std::abs(x);
    return x <= std::numeric_limits<T>::max() ? x : std::numeric_limits<T>::infinity();
  }
};

}  // namespace keel::cuda
