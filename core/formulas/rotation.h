#pragma once

// Plane rotations for Jacobi's method.

#include "formulas/secular.h"

namespace keel {

/// Whether an off-diagonal entry is so small that it changes no eigenvalue of its pair, nor of a
/// unit-size matrix, by more than rounding.
template <typename T>
KEEL_HOST_DEVICE bool is_negligible(T d_p, T d_q, T off) {
  constexpr T epsilon = std::numeric_limits<T>::epsilon(), tiny = epsilon * epsilon;
  return std::abs(off) <= std::fmax(epsilon / 4 * (std::abs(d_p) + std::abs(d_q)), tiny);
}

template <typename T>
struct Rotation {
  T c, s;
};

template <typename T>
KEEL_HOST_DEVICE void turn(const Rotation<T>& r, T& x, T& y) {
  const T old = x;
  x = r.c * old - r.s * y;
  y = r.s * old + r.c * y;
}

/// Computes the rotation that (nearly) annihilates the entry between two diagonal entries, and
/// applies it to these three. The angle may be rough: what remains of the entry is kept, and the
/// next sweep removes it. But c^2 + s^2 = 1 must hold to rounding.
template <typename T>
KEEL_HOST_DEVICE Rotation<T> annihilate(T& d_p, T& d_q, T& off) {
  const T gap = d_q - d_p, twice = 2 * off;
  const T inverse = rough_inverse_root(gap * gap + twice * twice);
  const T square = T(0.5) + T(0.5) * std::abs(gap) * inverse;
  const T inverse_c = rough_inverse_root(square);
  T c = square * inverse_c, s = T(0.5) * twice * inverse * inverse_c;
  const T mended = T(1.5) - T(0.5) * (c * c + s * s);
  // No branch: the two rotations of a pair run side by side.
  const bool stays = is_negligible(d_p, d_q, off);
  c = stays ? T(1) : c * mended;
  s = stays ? T(0) : s * (gap < 0 ? -mended : mended);
  const T moved = s * (c * twice - s * gap);
  d_p -= moved;
  d_q += moved;
  off = (c * c - s * s) * off - c * s * gap;
  return {c, s};
}

}  // namespace keel
