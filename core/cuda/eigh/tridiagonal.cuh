#pragma once

// Symmetric matrix -> tridiagonal T = Q^T M Q by Householder reflections, and eigenvectors of T ->
// those of M. The matrix stays in registers. A column needs two barriers.

#include "cuda/eigh/team.cuh"

namespace keel::cuda {

/// `row` is this thread's part of row team.column(). Reflection k is I - scale_k x_k x_k^T. Fills
/// diagonal, coupling, reflectors and reflector_scale.
template <typename T, int N>
__device__ void tridiagonalise(const Team<T, N>& team, int n, T (&row)[Team<T, N>::kOwn],
                               Storage<T, N>& s) {
  using Members = Team<T, N>;
  constexpr int kOwn = Members::kOwn, kRow = Members::kRow;
  // The matrix has unit size. A squared length below this bound is far below rounding, and its
  // square root would have lost digits.
  constexpr T negligible = std::numeric_limits<T>::min() / (kEpsilon<T> * kEpsilon<T>);
  const int r = team.column();
  for (int k = 0; k + 2 < n; ++k) {
    T* const reflector = s.reflectors + k * kRow;
    T x[kOwn], w[kOwn];
    // The whole warp of row k takes part, because the sums need its lanes.
    if (r / (32 / Members::kLanes) == k / (32 / Members::kLanes)) {
      T alpha = 0;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int c = team.element(i);
        if (c == k + 1) alpha = row[i];
        x[i] = c > k + 1 ? row[i] : T(0);
      }
      alpha = team.sum(alpha);  // all but one are zero
      const T tail = team.dot(x, x);
      T beta = alpha, scale = 0;
      if (tail > negligible) {
        const T square = alpha * alpha + tail, norm = short_root(square);
        beta = -copysign(norm, alpha);
        scale = short_inverse(square + fabs(alpha) * norm);
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
          if (team.element(i) == k + 1) x[i] = alpha - beta;
      }
      if (r == k) {
        team.store(reflector, x);
        if (team.lane() == 0) {
          s.coupling[k] = beta;
          s.reflector_scale[k] = scale;
        }
      }
    }
    team.sync();
    team.load(reflector, x);
    const T scale = s.reflector_scale[k], x_r = reflector[r];
    const T product = team.dot(row, x);
    const T p_r = r > k ? scale * product : T(0);
    if (team.lane() == 0) s.p[r] = p_r;
    team.sync();
    team.load(s.p, w);
    // A - x w^T - w x^T with w = p - (scale / 2) (p . x) x. Update first with what does not depend
    // on the sum, while that is computed.
    const T along = scale * team.dot(w, x) * x_r;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) row[i] -= x_r * w[i] + p_r * x[i];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) row[i] += along * x[i];
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int c = team.element(i);
    if (c == r) s.diagonal[r] = row[i];
    if (c == r + 1 && c == n - 1) s.coupling[r] = row[i];
  }
  team.sync();
}

/// vector = Q vector, for this thread's part of column team.column().
template <typename T, int N>
__device__ void apply_reflectors(const Team<T, N>& team, int n, T (&vector)[Team<T, N>::kOwn],
                                 const Storage<T, N>& s) {
  constexpr int kOwn = Team<T, N>::kOwn, kRow = Team<T, N>::kRow;
  for (int k = n - 3; k >= 0; --k) {
    T v[kOwn];
    team.load(s.reflectors + k * kRow, v);
    const T factor = s.reflector_scale[k] * team.dot(v, vector);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) vector[i] -= factor * v[i];
  }
}

}  // namespace keel::cuda
