#pragma once

// The last steps: sizes, signs, order, and the results.

#include <cmath>

#include "cuda/launch/early_start.cuh"
#include "cuda/svd/polish_grid/problem.cuh"

namespace keel::cuda {

/// Computes each column's size and the sign of X's and J's columns. Marks matrices that have not converged as left.
/// One warp per column.
template <typename T>
__global__ void __launch_bounds__(256)
    grid_measure(GridProblem<T> p, int step, T* sizes, T* signs) {
  await_previous();
  let_next_start();
  const std::int64_t which = std::int64_t(blockIdx.x) * 8 + threadIdx.x / 32;
  if (which >= p.count * p.n) return;
  const std::int64_t at = which / p.n;
  const int lane = int(threadIdx.x) % 32, state = p.state(step, at);
  const int tiles = p.tiles(p.n) * p.tiles(p.n);
  bool turns = (state & kIsLeft) != 0;
  if (!(state & kIsDone))
    for (int t = lane; t < tiles; t += 32) turns = turns || p.found[at * tiles + t].turns != 0;
  const bool converged = !__any_sync(0xffffffffu, turns);
  const T* const own = p.stack(state, at) + which % p.n * p.height();
  const int begin = p.wide() ? p.m : 0, end = p.wide() ? p.height() : p.m;
  T square = 0, top = -1, peak = 0;
  for (int i = lane; i < p.m; i += 32) square += own[i] * own[i];
  int place = 0;
  for (int i = begin + lane; i < end; i += 32)
    if (fabs(own[i]) > top) {
      top = fabs(own[i]);
      peak = own[i];
      place = i;
    }
  for (int step = 1; step < 32; step *= 2) {
    square += __shfl_xor_sync(0xffffffffu, square, step);
    const T their_top = __shfl_xor_sync(0xffffffffu, top, step),
            their_peak = __shfl_xor_sync(0xffffffffu, peak, step);
    const int their_place = __shfl_xor_sync(0xffffffffu, place, step);
    if (their_top > top || (their_top == top && their_place < place)) {
      top = their_top;
      peak = their_peak;
      place = their_place;
    }
  }
  if (lane != 0) return;
  sizes[which] = std::sqrt(square);
  signs[which] = peak < 0 ? T(-1) : T(1);
  if (!converged && which % p.n == 0) p.is_left[p.first + at] = true;
}

/// Writes the values in descending order, and the order of the columns.
template <typename T>
__global__ void __launch_bounds__(512)
    grid_order(GridProblem<T> p, const T* all_sizes, int* order, T* values, SvdStatus* status) {
  await_previous();
  let_next_start();
  const std::int64_t at = blockIdx.x, b = p.first + at;
  if (p.is_left[b]) return;
  const T* const sizes = all_sizes + at * p.n;
  for (int j = int(threadIdx.x); j < p.n; j += 512) {
    const T own = sizes[j];
    int place = 0;
    for (int k = 0; k < p.n; ++k) place += sizes[k] > own || (sizes[k] == own && k < j);
    order[at * p.n + place] = j;
    values[b * p.n + place] = ldexp(own, p.exponents[at]);
  }
  if (status != nullptr && threadIdx.x == 0) status[b] = SvdStatus::converged;
}

/// Writes U and V^T.
template <typename T>
__global__ void __launch_bounds__(256)
    grid_give(GridProblem<T> p, int step, const T* sizes, const T* signs, const int* order,
              Rectangles<T> all_left, Rectangles<T> all_right) {
  __shared__ T tile[32][33];
  await_previous();
  let_next_start();
  const GridPlace place(p.height(), p.n);
  const std::int64_t b = p.first + place.at;
  if (p.is_left[b]) return;
  const T* const stack = p.stack(p.state(step, place.at), place.at);
  const int quick = int(threadIdx.x) % 32, slow = int(threadIdx.x) / 32;
  for (int part = slow; part < 32; part += 8) {
    const int i = place.top + quick, c = place.first + part;
    if (i >= p.height() || c >= p.n) continue;
    const int own = order[place.at * p.n + c];
    const std::int64_t column = place.at * p.n + own;
    const T x = stack[std::int64_t(own) * p.height() + i] * signs[column];
    tile[part][quick] = (i < p.m ? x / sizes[column] : x) + T(0);
  }
  __syncthreads();
  T *const left = all_left[b], *const right = all_right[b];
  const std::int64_t down = all_left.row_stride, across = all_right.row_stride;
  for (int part = slow; part < 32; part += 8) {
    // U comes from X if the matrix is tall, from J if it is wide. Each result is written along its rows.
    for (const bool along_rows : {false, true}) {
      const int r = along_rows ? quick : part, k = along_rows ? part : quick;
      const int i = place.top + r, c = place.first + k;
      if (i >= p.height() || c >= p.n) continue;
      const bool of_x = i < p.m, is_left = of_x != p.wide();
      if (is_left == along_rows) continue;
      const int row = of_x ? i : i - p.m;
      (is_left ? left[row * down + c] : right[c * across + row]) = tile[k][r];
    }
  }
}

}  // namespace keel::cuda
