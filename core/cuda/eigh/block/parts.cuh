#pragma once

// Matrices that are block diagonal up to a permutation, with exact zeros outside the blocks
// ("parts"). Their rows are sorted by part, and each part is scaled to unit size. Reflections,
// rotations and merges keep the zeros between the parts, so parts do not mix and small ones are not
// rounded at the scale of large ones. The usual case of a single part is detected immediately.

#include "cuda/eigh/block/team.cuh"
#include "formulas/scale.h"

namespace keel::cuda {

/// Sorts the rows by part, parts in the order of their first rows, and scales each part of s.vectors.
/// Rows without a neighbour stay last. This is a separate call, so that the case of one
/// part needs no registers for it.
template <typename T, int N>
__device__ __noinline__ void order_by_parts(Team<T, N> team, int n, Storage<T, N>& s) {
  using Members = Team<T, N>;
  const int r = team.column(), lane = team.lane();
  T* const row = s.vectors + r * Members::kRow;
  int* const first_row = s.source;  // the first row of the part, as far as known
  T* const row_size = s.pole;
  T size = 0;
  for (int c = lane; c < n; c += Members::kLanes) size = fmax(size, fabs(row[c]));
  size = team.largest(size);
  if (lane == 0) {
    first_row[r] = r;
    row_size[r] = size;
  }
  team.sync();
  for (bool changes = true; changes;) {
    int first = r;
    for (int c = lane; c < n; c += Members::kLanes)
      if (row[c] != 0) first = min(first, first_row[c]);
    first = min(first, Members::near(first, 1));
    first = min(first, Members::near(first, 2));
    first = first_row[first];  // pointer jumping
    const bool moves = r < n && first < first_row[r];
    team.sync();
    if (moves && lane == 0) first_row[r] = first;
    changes = Members::any(moves);
    team.sync();
  }
  const int part = first_row[r];
  int before = 0;
  T part_size = 0;
  for (int k = lane; k < n; k += Members::kLanes) {
    const int other = first_row[k];
    before += s.alive[k] && (other < part || (other == part && k < r));
    if (other == part) part_size = fmax(part_size, row_size[k]);
  }
  before = team.sum(before);
  part_size = team.largest(part_size);
  const UnitScale<T> scale(part_size);
  if (r < n)
    for (int c = lane; c < n; c += Members::kLanes) row[c] = scale.down(row[c]);
  if (lane == 0 && r < n) {
    s.part_exponent[r] = T(scale.exponent);
    if (s.alive[r]) s.order[before] = r;
  }
  team.sync();
}

/// Determines the order in which rows are processed. Rows without a neighbour (dead channels) come
/// last, where no reflector touches them, so their eigenvalues are exact. Returns whether the other
/// rows form several parts.
template <typename T, int N>
__device__ bool order_rows(const Team<T, N>& team, int n, Storage<T, N>& s) {
  using Members = Team<T, N>;
  const int r = team.column();
  int neighbours = 0;
#pragma unroll 4
  for (int c = team.lane(); c < n; c += team.lanes())
    neighbours += c != r && s.vectors[r * Members::kRow + c] != 0;
  neighbours = team.sum(neighbours);
  const bool lonely = neighbours == 0;
  if (team.lane() == 0) s.alive[r] = !lonely;
  team.sync();
  int before = 0, busy = 0;
#pragma unroll 4
  for (int k = team.lane(); k < n; k += team.lanes()) {
    busy += s.alive[k];
    before += s.alive[k] && k < r;
  }
  before = team.sum(before);
  busy = team.sum(busy);
  if (team.lane() == 0 && r < n) s.order[lonely ? busy + r - before : before] = r;
  // If a row has all others as neighbours, there is only one part. If there is none, all rows are lonely.
  const bool several = !Members::any(r < n && neighbours >= busy - 1);
  if constexpr (!Members::kBlock) team.sync();
  if (team.thread() == 0) s.has_parts = several;
  if (several) order_by_parts(team, n, s);
  return several;
}

/// The barriers of order_rows, for a block's threads beyond the team.
__device__ inline void stand_by_ordering() {
  __syncthreads();
  if (__syncthreads_or(false)) return;  // a single part
  __syncthreads();
  for (bool changes = true; changes;) {
    __syncthreads();
    changes = __syncthreads_or(false);
    __syncthreads();
  }
  __syncthreads();
}

}  // namespace keel::cuda
