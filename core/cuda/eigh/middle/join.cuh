#pragma once

// Decomposes the two halves of the tridiagonal matrix, one block each, and computes the values of
// the merge that joins them.

#include "cuda/eigh/middle/parts.cuh"
#include "formulas/order.h"

namespace keel::cuda {

/// Two blocks of 64 fit a multiprocessor's shared memory. Their registers must fit too.
template <typename T, int N>
__global__ void __launch_bounds__(Team<T, N / 2>::kSize, N / 2 == 64 ? 2 : 1)
    halves_kernel(int n, std::int64_t first, const bool* wanted, MiddleParts<T, N>* all) {
  constexpr int kHalf = N / 2;
  extern __shared__ __align__(16) unsigned char memory[];
  if (wanted != nullptr && !wanted[first + blockIdx.x / 2]) return;
  auto& s = *reinterpret_cast<Storage<T, kHalf>*>(memory);
  MiddleParts<T, N>& parts = all[blockIdx.x / 2];
  const Team<T, kHalf> team{int(threadIdx.x)};
  const int base = int(blockIdx.x % 2) * kHalf, count = min(kHalf, n - base);
  for (int i = team.thread(); i < count; i += Team<T, kHalf>::kSize) {
    // The matrix is torn where the halves meet.
    const bool torn = base + i == kHalf - 1 || base + i == kHalf;
    const T cut = torn ? fabs(parts.coupling[kHalf - 1]) : T(0);
    s.diagonal[i] = parts.diagonal[base + i] - cut;
    s.coupling[i] = i + 1 < count ? parts.coupling[base + i] : T(0);
  }
  team.sync();
  divide_and_conquer(team, count, s);
  const int j = team.column();
  T own[Team<T, kHalf>::kOwn];
  team.load(s.vectors + j * Team<T, kHalf>::kRow, own);
  team.store(parts.vectors + (base + j) * kHalf, own);
  if (team.lane() == 0) parts.merge.value[base + j] = s.value[j];
}

template <typename T, int N>
__global__ void __launch_bounds__(Team<T, N>::kSize)
    join_kernel(int n, std::int64_t first, const bool* wanted, MiddleParts<T, N>* all, T* values,
                EighOrder order, EighStatus* status) {
  constexpr int kHalf = N / 2;
  extern __shared__ __align__(16) unsigned char memory[];
  if (wanted != nullptr && !wanted[first + blockIdx.x]) return;
  auto& s = *reinterpret_cast<MergeStorage<T, N>*>(memory);
  MiddleParts<T, N>& parts = all[blockIdx.x];
  const std::int64_t index = first + blockIdx.x;
  const Team<T, N> team{int(threadIdx.x)};
  const int j = team.column();
  if (team.lane() == 0) {
    s.value[j] = j < n ? parts.merge.value[j] : T(0);
    s.coupling[j] = j + 1 < n ? parts.coupling[j] : T(0);
  }
  team.sync();
  const Merge<T> merge = prepare_merge(
      team, n, kHalf, [&](int k, int row) { return parts.vectors[k * kHalf + row % kHalf]; }, s);
  const SecularRoot<T> root = find_roots<T, N>(team, merge, s);
  if (j < n && team.lane() == 0) s.value[j] = merged_value(merge, j, root, s);
  team.sync();
  const T value = j < n ? s.value[j] : T(0);
  const int place = team.sum(count_before(s.value, n, j, value, team.lane(), team.lanes()));
  const bool finite = parts.finite;
  if (j < n && team.lane() == 0) {
    parts.root_at[place] = j;
    values[index * n + place_in(order, n, place)] = finite ? ldexp(value, parts.exponent) : T(NAN);
  }
  if (team.thread() == 0) {
    parts.alive = merge.alive;
    parts.rotations = merge.rotations;
    if (status != nullptr) status[index] = finite ? EighStatus::converged : EighStatus::not_finite;
  }
  if (team.lane() != 0) return;
  // What the finish kernel needs to compute the vectors of this merge.
  const int dropped = j < n ? n - merge.alive : 0;
  if (j < merge.alive) {
    parts.merge.pole[j] = s.pole[j];
    parts.merge.refined[j] = s.refined[j];
    parts.merge.source[j] = s.source[j];
    parts.merge.origin[j] = s.origin[j];
    parts.merge.offset[j] = s.offset[j];
  }
  if (j < dropped) parts.merge.dropped_source[j] = s.dropped_source[j];
  if (j < merge.rotations) parts.merge.rotation[j] = s.rotation[j];
}

}  // namespace keel::cuda
