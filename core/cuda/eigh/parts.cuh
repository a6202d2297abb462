#pragma once

// Matrices that fall into parts, rows with nothing but exact zeros between them and the rest. Their rows are
// worked part by part, and each part at its own unit size. No reflection, rotation or merge makes anything but
// zeros of the zeros between them: parts do not meet, and the small ones are not rounded at the size of the large
// ones. Where there is one part, as nearly always, that is seen at once.

#include "cuda/eigh/team.cuh"

namespace keel::cuda {

/// The exponent of each row's part, and behind them whether there are several parts. There are two reflections
/// less than rows, so this room is free.
template <typename T, int N>
__device__ T* part_exponents(Storage<T, N>& s) {
  static_assert(Storage<T, N>::kRow > N);
  return s.reflectors + (N - 1) * Storage<T, N>::kRow;
}
template <typename T, int N>
__device__ bool has_parts(Storage<T, N>& s) {
  return part_exponents(s)[N] != 0;
}

/// Puts the rows of a part together, the parts in the order of their first rows, and finds the parts' exponents. Rows
/// without a neighbour keep their places, the last. A call of its own, so that one part costs no registers.
template <typename T, int N>
__device__ __noinline__ void order_by_parts(Team<T, N> team, int n, Storage<T, N>& s) {
  using Members = Team<T, N>;
  const int r = team.column(), lane = team.lane();
  const T* const row = s.vectors + r * Members::kRow;
  int* const first_row = s.source;  // of the part, as far as is known
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
    first = first_row[first];  // two steps at once
    const bool moves = r < n && first < first_row[r];
    team.sync();
    if (moves && lane == 0) first_row[r] = first;
    changes = Members::anyone(moves);
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
  if (lane == 0 && r < n) {
    int exponent = 0;
    if (part_size <= std::numeric_limits<T>::max()) frexp(part_size, &exponent);
    part_exponents(s)[r] = T(exponent);
    if (s.alive[r]) s.order[before] = r;
  }
  team.sync();
}

/// The order the rows are worked in: those without a neighbour (a dead channel's) last, where no
/// reflection touches them and their eigenvalues stay what they are to the last bit. Whether there are several
/// parts besides these.
template <typename T, int N>
__device__ bool order_rows(const Team<T, N>& team, int n, Storage<T, N>& s) {
  using Members = Team<T, N>;
  const int r = team.column();
  int neighbours = 0;
  for (int c = team.lane(); c < n; c += team.lanes())
    neighbours += c != r && s.vectors[r * Members::kRow + c] != 0;
  neighbours = team.sum(neighbours);
  const bool lonely = neighbours == 0;
  if (team.lane() == 0) s.alive[r] = !lonely;
  team.sync();
  int before = 0, busy = 0;
  for (int k = team.lane(); k < n; k += team.lanes()) {
    busy += s.alive[k];
    before += s.alive[k] && k < r;
  }
  before = team.sum(before);
  busy = team.sum(busy);
  if (team.lane() == 0 && r < n) s.order[lonely ? busy + r - before : before] = r;
  // A row that has all the others for neighbours holds them together.
  const bool together = Members::anyone(r < n && neighbours == busy - 1);
  if constexpr (!Members::kBlock) team.sync();
  const bool several = busy > 0 && !together;
  if (team.thread == 0) part_exponents(s)[N] = several;
  if (several) order_by_parts(team, n, s);
  return several;
}

}  // namespace keel::cuda
