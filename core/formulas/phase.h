#pragma once

// A complex number as its size times a number of size 1.

#include <limits>

#include "formulas/secular.h"

namespace keel {

/// The number belongs to a matrix of unit size. A squared size below the bound is far below rounding, and would have lost
/// digits: such numbers count as zero, and have the phase 1.
template <typename T>
struct SizeAndPhase {
  T size, re, im;  ///< the number is about size (re + i im)

  KEEL_HOST_DEVICE SizeAndPhase(T x, T y) {
    constexpr T kEps = std::numeric_limits<T>::epsilon();
    const T square = x * x + y * y;
    const bool turns = square > std::numeric_limits<T>::min() / (kEps * kEps);
    const T inverse = short_inverse_root(turns ? square : T(1));
    size = turns ? square * inverse : T(0);
    re = turns ? x * inverse : T(1);
    im = turns ? y * inverse : T(0);
  }
};

}  // namespace keel
