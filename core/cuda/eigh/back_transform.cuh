#pragma once

// Eigenvectors of the tridiagonal matrix T = Q^T M Q -> those of M.

#include "cuda/eigh/team.cuh"

namespace keel::cuda {

/// Applies reflectors 16 SEGMENT + 14 down to 16 SEGMENT - 1, which are zero before entry 16 SEGMENT.
/// The next one is loaded while one is applied.
template <int SEGMENT, typename T, int N>
__device__ void apply_some_reflectors(const Team<T, N>& team, int n, T (&vector)[Team<T, N>::kOwn],
                                      const Storage<T, N>& s) {
  using Members = Team<T, N>;
  constexpr int kOwn = Members::kOwn, kPiece = Members::kPiece;
  constexpr int kZeros = SEGMENT * 16 / Members::kLanes;  // of this thread's numbers
  const int first = max(16 * SEGMENT - 1, 0), last = min(16 * SEGMENT + 14, n - 3);
  T next[kOwn], next_scale = 0;
  const auto load = [&](int k) {
    next_scale = s.reflector_scale[k];
#pragma unroll
    for (int i = kZeros; i < kOwn; i += kPiece) {
      const auto piece = pack_at<kPiece>(s.reflectors + k * Members::kRow + team.element(i));
#pragma unroll
      for (int e = 0; e < kPiece; ++e) next[i + e] = piece.at[e];
    }
  };
  if (last >= first) load(last);
#pragma unroll 2
  for (int k = last; k >= first; --k) {
    T x[kOwn];
#pragma unroll
    for (int i = kZeros; i < kOwn; ++i) x[i] = next[i];
    const T scale = next_scale;
    load(max(k - 1, first));
    T partial[4] = {};
#pragma unroll
    for (int i = kZeros; i < kOwn; ++i) partial[i % 4] += x[i] * vector[i];
    const T factor = scale * team.sum(partial[0] + partial[1] + (partial[2] + partial[3]));
#pragma unroll
    for (int i = kZeros; i < kOwn; ++i) vector[i] -= factor * x[i];
  }
  if constexpr (SEGMENT > 0) apply_some_reflectors<SEGMENT - 1>(team, n, vector, s);
}

/// vector = Q vector, for this thread's part of column team.column().
template <typename T, int N>
__device__ void apply_reflectors(const Team<T, N>& team, int n, T (&vector)[Team<T, N>::kOwn],
                                 const Storage<T, N>& s) {
  apply_some_reflectors<(N - 1) / 16>(team, n, vector, s);
}

}  // namespace keel::cuda
