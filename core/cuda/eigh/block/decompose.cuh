#pragma once

// One symmetric matrix, n <= 128, solved entirely by one block (or part of a warp): load and scale,
// tridiagonalise, divide and conquer, back-transform; for n <= 4 by rotations only. The including
// file defines where entries come from and where the result goes.

#include <type_traits>

#include "cuda/eigh/block/back_transform.cuh"
#include "cuda/eigh/block/divide.cuh"
#include "cuda/eigh/block/parts.cuh"
#include "cuda/eigh/block/tridiagonal.cuh"
#include "cuda/eigh/sign.cuh"
#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "formulas/order.h"
#include "formulas/scale.h"
#include "keel/eigh.h"

namespace keel::cuda {

template <typename T, int N>
__device__ T largest_of_all(const Team<T, N>& team, T value, T* exchange) {
  constexpr int kWarp = Team<T, N>::kBlock ? 32 : Team<T, N>::kSize;
  value = Lanes<kWarp>::largest(value);
  if constexpr (Team<T, N>::kBlock) {
    if (team.thread() % 32 == 0) exchange[team.thread() / 32] = value;
    team.sync();
    value = exchange[0];
    for (int warp = 1; warp < Team<T, N>::kSize / 32; ++warp) value = fmax(value, exchange[warp]);
  }
  return value;
}

/// Leaves the values in s.value, unsorted, and in `own` this thread's part of vector team.column(),
/// whose k-th entry belongs to row s.order[k].
template <typename T, int N, typename Entry>
__device__ UnitScale<T> decompose_by_parts(const Team<T, N>& team, int n, const Entry& entry,
                                           Storage<T, N>& s, T (&own)[Team<T, N>::kOwn]) {
  using Members = Team<T, N>;
  constexpr int kOwn = Members::kOwn, kRow = Members::kRow;
  const int j = team.column();
  T size = 0;
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int c = team.element(k);
    own[k] = c <= j && j < n ? entry(j, c) : T(0);
  }
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int c = team.element(k);
    if (c <= j && j < n) s.vectors[j * kRow + c] = s.vectors[c * kRow + j] = own[k];
    size = fmax(size, UnitScale<T>::magnitude(own[k]));
  }
  const UnitScale<T> scale(largest_of_all(team, size, s.exchange));
  team.sync();
  UnitScale<T> of_entries = scale;
  if (order_rows(team, n, s)) of_entries.set(0);  // scaled part by part
  tridiagonalise(team, n, of_entries, s);
  divide_and_conquer(team, n, s);
  apply_reflectors(team, n, s);
  team.load(s.vectors + j * kRow, own);
  return scale;
}

/// The same for n <= 4. Every thread solves the whole matrix and keeps the row of the vectors that
/// it needs.
template <typename T, typename Entry>
__device__ UnitScale<T> decompose_by_rotations(const Team<T, 4>& team, int n, const Entry& entry,
                                               Storage<T, 4>& s, T (&own)[1]) {
  Quad<T> quad([&](int r, int c) { return c < n ? entry(c, r) : T(0); }, team.lane());
  T size = 0;
  quad.for_each([&](T& x) { size = fmax(size, UnitScale<T>::magnitude(x)); });
  UnitScale<T> scale(size);
  const bool several = scale.finite && !quad.first_holds_together(n);
  int exponent[4] = {};
  if (several)
    quad.scale_parts(exponent);
  else
    quad.for_each([&](T& x) { x = scale.finite ? scale.down(x) : T(0); });
  quad.solve();
  const int j = team.column();
  own[0] = quad.row_entry(j);
  if (team.lane() == 0) {
    s.value[j] = several ? ldexp(quad.value(j), Quad<T>::chosen(exponent, j)) : quad.value(j);
    s.order[j] = j;
  }
  if (several) scale.exponent = 0;
  team.sync();
  return scale;
}

/// entry(r, c), c <= r, is the lower triangle. If the team is a block, the entries may lie in
/// s.reflectors: they are read before the first barrier, and that memory is written after it.
/// Leaves the eigenvalues in s.sorted_value, descending, and the eigenvectors in the columns of
/// s.update. If an entry is not finite, returns false and everything is NaN.
template <typename T, int N, typename Entry>
__device__ bool decompose(const Team<T, N>& team, int n, const Entry& entry, Storage<T, N>& s) {
  using Members = Team<T, N>;
  constexpr int kOwn = Members::kOwn;
  T own[kOwn];
  UnitScale<T> scale = [&] {
    if constexpr (N == 4)
      return decompose_by_rotations(team, n, entry, s, own);
    else
      return decompose_by_parts(team, n, entry, s, own);
  }();

  const int j = team.column();
  int row[kOwn];  // of each number; negative if there is none
#pragma unroll
  for (int k = 0; k < kOwn; k += Members::kPiece) {
    const auto rows = pack_at<Members::kPiece>(s.order + team.element(k));
#pragma unroll
    for (int i = 0; i < Members::kPiece; ++i)
      row[k + i] = team.element(k + i) < n ? rows.at[i] : -1;
  }
  const LargestEntry<T> largest(own, row, Members::kLanes);
  if constexpr (N > 4)
    if (s.has_parts) {  // a vector is zero outside its part
      if (team.lane() == 0 && j < n)
        s.value[j] = ldexp(s.value[j], int(s.part_exponent[largest.row]));
      scale.exponent = 0;
      team.sync();
    }
  int place = 0;
  const T value = j < n ? s.value[j] : T(0);
  team.for_each_of(s.value, N, n, j, [&](T other, bool earlier) {
    place += int(other > value) | (int(other == value) & int(earlier));  // no branches
  });
  place = team.sum(place);
  if (j < n) {
    if (team.lane() == 0) s.sorted_value[place] = scale.finite ? scale.up(value) : T(NAN);
#pragma unroll
    for (int k = 0; k < kOwn; ++k)
      if (row[k] >= 0)
        s.update[row[k] * Members::kRow + place] =
            scale.finite ? largest.with_sign(own[k]) : T(NAN);
  }
  team.sync();
  return scale.finite;
}

/// The barriers of decompose, for a block's threads beyond the team. N is at least 16.
template <typename T, int N>
__device__ void stand_by(int n, const Storage<T, N>& s) {
  const auto wait = [](int barriers) {
    for (int i = 0; i < barriers; ++i) __syncthreads();
  };
  wait(2);  // the largest entry
  stand_by_ordering();
  wait(n + 1);  // tridiagonalise
  wait(1);      // the 4 x 4 parts
  for (int half = 4; half < n; half *= 2)
    wait(7);  // prepare_merge, find_roots, solve_merge, multiply_by_update
  wait(3);    // apply_reflectors
  wait(s.has_parts ? 2 : 1);
}

/// Stores the result row by row.
template <typename T, int N>
__device__ void store_decomposition(const Team<T, N>& team, int n, const Storage<T, N>& s,
                                    EighOrder order, T* values, T* vectors,
                                    std::int64_t row_stride) {
  for (int at = team.thread(); at < n; at += Team<T, N>::kSize)
    values[at] = s.sorted_value[place_in(order, n, at)];
  // Adjacent threads store adjacent numbers, several rows at once.
  constexpr int kRows = Team<T, N>::kSize / N, kAtOnce = N / kRows < 8 ? N / kRows : 8;
  const int first = team.thread() / N, c = team.thread() % N;
  if (c >= n) return;
  const T* const from = s.update + place_in(order, n, c);
  for (int r = first; r < N; r += kRows * kAtOnce) {
    T x[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) x[k] = from[(r + k * kRows) * Team<T, N>::kRow];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (r + k * kRows < n) vectors[(r + k * kRows) * row_stride + c] = x[k];
  }
}

/// Matrices per block: teams smaller than a warp share blocks of four warps.
template <typename T, int N>
inline constexpr int kTeams = Team<T, N>::kBlock ? 1 : 128 / Team<T, N>::kSize;

/// Blocks per multiprocessor, where this is not left to the compiler: handling small matrices in
/// parts must not lower the occupancy for the others, and large ones must leave room for another.
template <typename T, int N>
inline constexpr int kBlocksAtOnce = N == 64   ? 2
                                     : N == 32 ? (sizeof(T) == 4 ? 0 : 4)
                                     : N > 8   ? 0
                                     : N == 8  ? (sizeof(T) == 4 ? 9 : 5)
                                               : (sizeof(T) == 4 ? 16 : 7);

template <typename T, int N>
__global__ void __launch_bounds__(Team<T, N>::kSize* kTeams<T, N>, kBlocksAtOnce<T, N>)
    eigh_kernel(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
                EighStatus* status, const bool* wanted) {
  extern __shared__ __align__(16) unsigned char memory[];
  let_next_start();  // for a next kernel that is launched early
  if (wanted != nullptr) {
    bool any = false;
    for (int slot = 0; slot < kTeams<T, N>; ++slot) {
      const std::int64_t index = std::int64_t(blockIdx.x) * kTeams<T, N> + slot;
      any = any || (index < matrices.batch && wanted[index]);
    }
    if (!any) return;
  }
  const int n = int(matrices.n), slot = threadIdx.x / Team<T, N>::kSize;
  const std::int64_t index = std::int64_t(blockIdx.x) * kTeams<T, N> + slot;
  const Team<T, N> team{int(threadIdx.x) % Team<T, N>::kSize};
  auto& shared = reinterpret_cast<Storage<T, N>*>(memory)[slot];
  // A team without a matrix repeats the last one, because a warp runs in lockstep, and writes
  // nothing.
  const bool exists = index < matrices.batch;
  const T* const source = matrices[exists ? index : matrices.batch - 1];
  const bool finite = decompose(
      team, n, [&](int r, int c) { return source[r * matrices.row_stride + c]; }, shared);
  if (!exists) return;
  store_decomposition(team, n, shared, order, values + index * n, vectors[index],
                      vectors.row_stride);
  if (team.thread() == 0 && status != nullptr)
    status[index] = finite ? EighStatus::converged : EighStatus::not_finite;
}

/// The shared memory of a block with one STORAGE per team.
template <typename T, int N, typename STORAGE>
inline constexpr int kBytesOfTeams = int(sizeof(STORAGE)) * kTeams<T, N>;

template <typename T, int N>
unsigned blocks_of_teams(std::int64_t batch) {
  return unsigned((batch + kTeams<T, N> - 1) / kTeams<T, N>);
}

}  // namespace keel::cuda
