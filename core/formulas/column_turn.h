#pragma once

// The rotation of one-sided Jacobi, which makes two columns orthogonal. Used by threads with one matrix each and by
// threads that share one.

#include "formulas/rotation.h"

namespace keel {

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
struct ColumnTurn {
  T s = 0, tau = 0, moved = 0;

  /// `product` is the columns' inner product and must not be zero.
  KEEL_HOST_DEVICE ColumnTurn(T x_square, T y_square, T product) {
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
  /// The old values plus a correction, so that small turns make small rounding errors.
  KEEL_HOST_DEVICE void operator()(T& x, T& y) const {
    const T old = x;
    x = old - s * (y + tau * old);
    y = y + s * (old - tau * y);
  }
};

/// Whether columns of these sizes, with this inner product, must still be rotated. False if one is zero.
template <typename T>
KEEL_HOST_DEVICE bool is_to_turn(T product, T x_size, T y_size, T tolerance) {
  return std::abs(product) > tolerance * x_size * y_size;
}

}  // namespace keel
