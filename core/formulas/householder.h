#pragma once

// The reflection I - scale v v^T that takes (alpha, x) to (beta, 0), with v = (alpha - beta, x).

#include <cmath>
#include <limits>

#include "formulas/secular.h"

namespace keel {

template <typename T>
struct Householder {
  bool reflects;
  T beta, scale;

  /// `tail` is the squared length of x. The matrix has unit size. A squared length below the bound is far below rounding,
  /// and its square root would have lost digits.
  KEEL_HOST_DEVICE Householder(T alpha, T tail) {
    constexpr T kEps = std::numeric_limits<T>::epsilon();
    const T square = std::fma(alpha, alpha, tail), norm = short_root(square);
    reflects = tail > std::numeric_limits<T>::min() / (kEps * kEps);
    beta = reflects ? -std::copysign(norm, alpha) : alpha;
    scale = reflects ? short_inverse(square + std::abs(alpha) * norm) : T(0);
  }
};

}  // namespace keel
