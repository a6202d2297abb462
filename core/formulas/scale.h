#pragma once

// Matrices are scaled to unit size, so that nothing overflows and tiny numbers are known to be
// negligible.

#include <cmath>
#include <limits>

#include "host_device.h"

namespace keel {

/// The power of two that scales a matrix to unit size, and whether the matrix is finite.
template <typename T>
struct UnitScale {
  bool finite;
  int exponent = 0;
  T once, again;  ///< their product is 2^-exponent, which may overflow itself
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
  /// The magnitude of x. NaN becomes infinity, because fmax would ignore it.
  KEEL_HOST_DEVICE static T magnitude(T x) {
    x = std::abs(x);
    return x <= std::numeric_limits<T>::max() ? x : std::numeric_limits<T>::infinity();
  }
};

}  // namespace keel
