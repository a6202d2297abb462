#pragma once

// What the CPU's and CUDA's way from the eigenvectors of A^T A to singular values have in common.
//
// Of an m x n matrix A, m >= n, that is not steep: the eigenvectors J of A^T A are right to rounding of the largest value's square, so
// the columns of X = A J are orthogonal but for small angles. What they lack is taken from their products: with
// w = x_i . x_j and k_ij = -w / (|x_i|^2 - |x_j|^2) both X and J are turned by the orthogonal matrix next to I + K, which
// is (I + K) (I - K^2)^(-1/2), all pairs at once. That squares the angles; once or twice suffices. Columns are judged by their own
// sizes, as one-sided Jacobi judges them, which takes what this leaves.

#include <limits>

namespace keel {

/// A matrix is steep where columns, or more than m - n rows, are smaller than this part of the largest entry: QR and
/// Jacobi give small values their digits then, A^T A does not.
inline constexpr int kSteepFrom = 32;

/// The sum of all k_ij^2 up to which I + K is orthogonal to rounding; I + K + K^2 / 2 is; and (I + K) (I + K^2 / 2)
/// (I + 3 K^4 / 8) is. K is skew: the square of its norm is at most half the sum.
template <typename T>
struct PolishReach {
  static constexpr T kFirst = std::numeric_limits<T>::epsilon();        // K^2 / 2 < eps / 4
  static constexpr T kSecond = sizeof(T) == 4 ? T(5.6e-4) : T(2.4e-8);  // K^4 / 8 < eps / 4
  static constexpr T kThird = sizeof(T) == 4 ? T(1.2e-2) : T(1.5e-5);   // K^6 / 8 < eps / 4
};

}  // namespace keel
