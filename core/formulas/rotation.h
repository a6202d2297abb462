#pragma once

// Plane rotations for Jacobi's method: of a symmetric matrix, and of the columns of a matrix (one-sided).

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

  KEEL_HOST_DEVICE void operator()(T& x, T& y) const {
    const T old = x;
    x = c * old - s * y;
    y = s * old + c * y;
  }
};

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

// --- One-sided: makes two columns orthogonal. Used by threads with one matrix each and by threads that share one.

/// Six to eleven sweeps suffice in practice. It takes more if small columns are equal to others up to rounding, and
/// QR meets them among larger ones: 34 for n = 256 if each column is 0.9 of the one before and every second one
/// differs from it only by that factor.
inline constexpr int kMaxSvdSweeps = 120;

/// Columns whose squared length is below this are too close to subnormal numbers and count as zero. This is at most
/// 4e-16 of a unit-scale matrix in float, 1e-146 in double.
template <typename T>
inline constexpr T kTinySvdSquare = std::numeric_limits<T>::min() /
                                    (std::numeric_limits<T>::epsilon() / 2);

/// A column that a rotation shrinks to less than this share of its square is only rounding. Rotating it further would
/// never end.
template <typename T>
inline constexpr T kSvdNoiseSquare =
    16 * std::numeric_limits<T>::epsilon() * std::numeric_limits<T>::epsilon();

/// Remaining entries of column k below this size, when its reflection comes, are only rounding.
template <typename T>
KEEL_HOST_DEVICE T svd_noise(T row_size, T column_size) {
  return 4 * std::numeric_limits<T>::epsilon() * row_size * column_size;
}

/// The rotation of columns x and y: sine, tangent of half the angle, and what y's square gains from x's.
template <typename T>
struct ColumnRotation {
  T s = 0, tau = 0, moved = 0;

  /// `product` is the columns' inner product and must not be zero.
  KEEL_HOST_DEVICE ColumnRotation(T x_square, T y_square, T product) {
    const T zeta = (y_square - x_square) * T(0.5) * short_inverse(product);
    const T reach = std::abs(zeta);
    const bool far =
        reach > 1 / std::numeric_limits<T>::epsilon();  // its square may overflow, and adds nothing
    const T near = far ? T(1) : reach;
    T t = far ? T(0.5) * short_inverse(reach) : short_inverse(near + short_root(1 + near * near));
    t = zeta < 0 ? -t : t;
    const T c = short_inverse_root(1 + t * t);
    s = c * t;
    tau = s * short_inverse(1 + c);
    moved = t * product;
  }
  /// The old values plus a correction, so that small rotations make small rounding errors.
  KEEL_HOST_DEVICE void operator()(T& x, T& y) const {
    const T old = x;
    x = old - s * (y + tau * old);
    y = y + s * (old - tau * y);
  }
};

/// Whether columns of these sizes, with this inner product, must still be rotated. False if one is zero.
template <typename T>
KEEL_HOST_DEVICE bool must_rotate(T product, T x_size, T y_size, T tolerance) {
  return std::abs(product) > tolerance * x_size * y_size;
}

}  // namespace keel
