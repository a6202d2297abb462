#pragma once

// Shared by the CPU and CUDA: from the eigenvectors of A^T A to singular values.
//
// Let A be an m x n matrix, m >= n, that is not steep. The eigenvectors J of A^T A are accurate
// relative to the largest eigenvalue, so the columns of X = A J are orthogonal up to small angles.
// The remaining angles follow from inner products: with w = x_i . x_j and k_ij = -w / (|x_i|^2 -
// |x_j|^2), X and J are multiplied by the orthogonal matrix nearest to I + K, which is (I + K) (I -
// K^2)^(-1/2). This corrects all pairs at once and squares the angles, so one or two rounds
// suffice. Columns are judged relative to their own sizes, as in one-sided Jacobi, which solves the
// matrices that this does not.
//
// A^T A does not determine the directions of columns of X that are much shorter than the longest, so
// their angles may be large. They are first made orthogonal to the longer ones, and then rotated by the
// eigenvectors of their own Gram matrix. The shortest of these may need that again, and columns of almost
// equal lengths, whose angles w determines but k_ij does not. On CUDA regroup.h does that.
//
// Rounding errors of the rotation by eigenvectors are as large as those of the longest column. If A is
// R^T from QR with pivots, its short columns have digits below that. On the CPU only columns within a
// window of sizes are rotated together then. Shorter ones are made orthogonal to them afterwards.

#include <cmath>
#include <cstdint>
#include <limits>

#include "host_device.h"

namespace keel {

/// A matrix is steep if the largest entry exceeds that of some column, or of more than m - n rows,
/// by more than this factor. Then QR and Jacobi compute small values accurately, but A^T A does
/// not. On the CPU, rows and columns of zeros do not count; on CUDA, neither do those that one_dominates explains.
inline constexpr int kSteepFrom = 32;

/// Whether a matrix is steep only because one singular value dominates: then it is near the outer product of two vectors,
/// and A = D1 C D2 has no well-conditioned C. Compares each entry with that of the row and the column of the largest one,
/// entry(i0, j0). The threads of a team call it together, which ends with a barrier. Entries are at unit scale.
template <typename Team, typename Entry>
KEEL_HOST_DEVICE bool one_dominates(const Team& team, int m, int n, int i0, int j0,
                                    const Entry& entry) {
  const auto pivot = entry(i0, j0);
  int near[1] = {0};
  for (int at = team.thread(); at < m * n; at += team.size()) {
    const int i = at / n, j = at - i * n;
    const auto product = entry(i, j0) * entry(i0, j);
    near[0] += std::abs(entry(i, j) * pivot - product) <= std::abs(product) / 4 ? 1 : 0;
  }
  team.total(near);
  return std::int64_t(near[0]) * 3 >= std::int64_t(m) * n * 2;
}
/// That decision is for columns of at least this share of the largest. Those of random vectors are longer.
template <typename T>
KEEL_HOST_DEVICE T least_of_dominated(int n) {
  return 1 / T(1024 * n);
}

/// Bounds on the sum of all k_ij^2: up to kFirst, I + K is orthogonal to rounding; up to kSecond, I
/// + K + K^2 / 2 is; up to kThird, (I + K) (I + K^2 / 2) (I + 3 K^4 / 8) is. K is skew-symmetric,
/// so the square of its norm is at most half the sum.
template <typename T>
struct PolishReach {
  static constexpr T kFirst = std::numeric_limits<T>::epsilon();        // K^2 / 2 < eps / 4
  static constexpr T kSecond = sizeof(T) == 4 ? T(5.6e-4) : T(2.4e-8);  // K^4 / 8 < eps / 4
  static constexpr T kThird = sizeof(T) == 4 ? T(1.2e-2) : T(1.5e-5);   // K^6 / 8 < eps / 4
  /// On CUDA: a matrix whose angles are too many or too large takes out those below this one first. The others are
  /// between columns that A^T A could not tell apart (regroup.h).
  static constexpr T kApart = sizeof(T) == 4 ? T(3e-3) : T(1e-4);
  /// Bound on the sum of the squares of angles C that are taken out by shears: C^3 / 8 < eps / 8.
  static constexpr T kShear = sizeof(T) == 4 ? T(2.4e-5) : T(3.6e-11);
  /// Columns whose squared length is below this share of the largest have no part in its rotation: their
  /// angles to it are small, and its rounding errors would be too large for them.
  static constexpr T kWindow = sizeof(T) == 4 ? T(1e-12) : T(1e-24);
  /// Eigenvectors of values below this share of the largest are not good enough to start from: they
  /// are off by more than about eps / tail, and by more the more of them there are.
  static constexpr T tail(T n) {
    return sizeof(T) == 4 ? 32 * std::numeric_limits<T>::epsilon() * n : T(1e-9);
  }
};

/// The angle k_ij, from w = x_i . x_j and the squares of columns j and i, i != j; `most` is eps sqrt(n) times their
/// sizes. Sets `rotates` if the pair is not orthogonal enough. Returns NaN if a column is almost zero.
template <typename T>
KEEL_HOST_DEVICE T polish_angle(T w, T own, T other, T most, bool& rotates) {
  constexpr T kEps = std::numeric_limits<T>::epsilon();
  const T gap = other - own, reach = std::abs(w);
  // Also corrects pairs just below the threshold if that is safe, so that rounding does not lift them above it again.
  const bool over = reach > most, nearly = reach > most / 4 && 1024 * reach < std::abs(gap);
  T angle = over || nearly ? -w / gap : T(0);
  if (!(own > kEps * kEps * kEps * other)) angle = std::numeric_limits<T>::quiet_NaN();
  rotates = rotates || over || angle != angle;
  return angle;
}

/// An angle's contribution to the sum of squares, at most 1.
template <typename T>
KEEL_HOST_DEVICE T polish_square(T angle) {
  const T square = angle * angle;
  return square > 1 ? T(1) : square;
}

/// Whether only few angles are large, as of neighbours: the sum of all squares and the part up to PolishReach::kApart.
template <typename T>
KEEL_HOST_DEVICE bool few_are_large(T sum, T apart) {
  return sum - apart <= 4;
}

/// Whether too many angles are large for this method, as when several columns are only rounding errors.
template <typename T>
KEEL_HOST_DEVICE bool too_many_angles(int n, T sum) {
  return !(sum <= T(16 + n / 4));
}

}  // namespace keel
