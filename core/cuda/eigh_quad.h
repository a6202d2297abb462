#pragma once

// Four by four, where divide and conquer starts: cyclic Jacobi in registers, two rotations at a time.

#include "eigh_secular.h"

namespace keel::cuda {

/// 1 / x, sqrt(x) and 1 / sqrt(x) to an ulp or so, in fewer steps than the exact ones.
KEEL_HOST_DEVICE inline float short_inverse(float x) {
  const float guess = rough_inverse(x);
  return guess + guess * (1 - x * guess);
}
KEEL_HOST_DEVICE inline double short_inverse(double x) { return 1 / x; }
KEEL_HOST_DEVICE inline float short_inverse_root(float x) {
#ifdef __CUDA_ARCH__
  const float guess = rsqrtf(x);
#else
  const float guess = 1 / std::sqrt(x);
#endif
  return guess + guess / 2 * (1 - x * guess * guess);
}
KEEL_HOST_DEVICE inline double short_inverse_root(double x) { return 1 / std::sqrt(x); }
KEEL_HOST_DEVICE inline float short_root(float x) {
#ifdef __CUDA_ARCH__
  const float inverse = rsqrtf(x);
#else
  const float inverse = 1 / std::sqrt(x);
#endif
  const float guess = x * inverse;
  return guess + inverse / 2 * (x - guess * guess);
}
KEEL_HOST_DEVICE inline double short_root(double x) { return std::sqrt(x); }

inline constexpr int kMaxQuadSweeps = 12;

/// A symmetric 4 x 4 matrix of unit size or less on its way to diagonal form, and one row of the product of
/// the rotations. Whoever needs all four rows keeps four of these: they take the same way.
template <typename T>
struct Quad {
  T diagonal[4];
  T off[4][4];  ///< above the diagonal
  T row[4];

  KEEL_HOST_DEVICE Quad(const T (&d)[4], const T (&coupling)[3], int which) {
    for (int i = 0; i < 4; ++i) {
      diagonal[i] = d[i];
      row[i] = i == which ? T(1) : T(0);
      for (int j = i + 1; j < 4; ++j) off[i][j] = j == i + 1 ? coupling[i] : T(0);
    }
  }

  /// An entry this small changes no eigenvalue of its pair by more than rounding, nor a matrix of unit size.
  KEEL_HOST_DEVICE bool negligible(int p, int q) const {
    constexpr T tiny = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
    constexpr T relative = std::numeric_limits<T>::epsilon() / 4;
    return std::abs(off[p][q]) <=
           std::fmax(relative * (std::abs(diagonal[p]) + std::abs(diagonal[q])), tiny);
  }
  KEEL_HOST_DEVICE bool diagonalised() const {
    return negligible(0, 1) & negligible(0, 2) & negligible(0, 3) & negligible(1, 2) &
           negligible(1, 3) & negligible(2, 3);
  }

  struct Rotation {
    T c, s;
  };
  KEEL_HOST_DEVICE static void turn(const Rotation& r, T& x, T& y) {
    const T old = x;
    x = r.c * old - r.s * y;
    y = r.s * old + r.c * y;
  }

  /// Makes entry (p, q) zero. Of the others this changes only the diagonal.
  KEEL_HOST_DEVICE Rotation annihilate(int p, int q) {
    if (negligible(p, q)) return {1, 0};
    const T ratio = (diagonal[q] - diagonal[p]) * short_inverse(2 * off[p][q]);
    const T size = short_inverse(std::abs(ratio) + short_root(1 + ratio * ratio));
    const T tangent = std::copysign(size, ratio), c = short_inverse_root(1 + tangent * tangent);
    diagonal[p] -= tangent * off[p][q];
    diagonal[q] += tangent * off[p][q];
    off[p][q] = 0;
    return {c, tangent * c};
  }

  /// Rotates (p, q) and (u, v), which with p < q, u < v and p < u are all four.
  template <int p, int q, int u, int v>
  KEEL_HOST_DEVICE void rotate_pairs() {
    const Rotation first = annihilate(p, q), second = annihilate(u, v);
    T& pu = off[p][u];
    T& pv = off[p][v];
    T& qu = q < u ? off[q][u] : off[u][q];
    T& qv = q < v ? off[q][v] : off[v][q];
    turn(first, pu, qu);
    turn(first, pv, qv);
    turn(second, pu, pv);
    turn(second, qu, qv);
    turn(first, row[p], row[q]);
    turn(second, row[u], row[v]);
  }

  KEEL_HOST_DEVICE void solve() {
    for (int sweep = 0; sweep < kMaxQuadSweeps && !diagonalised(); ++sweep) {
      rotate_pairs<0, 1, 2, 3>();
      rotate_pairs<0, 2, 1, 3>();
      rotate_pairs<0, 3, 1, 2>();
    }
  }
};

}  // namespace keel::cuda
