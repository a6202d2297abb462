#pragma once

// The last steps: sizes, signs, order, and the results.

#include <cmath>

#include "cuda/launch/early_start.cuh"
#include "cuda/svd/polish/grid/problem.cuh"

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
  if (!turns && !(state & kIsDone))
    for (int t = lane; t < tiles; t += 32) turns = turns || p.found[at * tiles + t].turns != 0;
  if (__any_sync(0xffffffffu, turns)) {  // not converged
    if (lane == 0 && which % p.n == 0) p.is_left[p.first + at] = true;
    return;
  }
  const T* const own = p.stack(state, at) + which % p.n * p.height();
  const int begin = p.wide() ? p.m : 0, end = p.wide() ? p.height() : p.m;
  T square = 0, top = -1, peak = 0;
#pragma unroll 4
  for (int i = lane; i < p.m; i += 32) square += own[i] * own[i];
  int place = 0;
#pragma unroll 4
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
}

/// Writes the values in descending order, and the order of the columns.
template <typename T>
__global__ void __launch_bounds__(512)
    grid_order(GridProblem<T> p, const T* all_sizes, int* order, T* values, SvdStatus* status) {
  await_previous();
  let_next_start();
  const std::int64_t at = blockIdx.x, b = p.first + at;
  if (p.is_left[b]) return;
  __shared__ T sizes[512];
  for (int j = int(threadIdx.x); j < p.n; j += 512) sizes[j] = all_sizes[at * p.n + j];
  __syncthreads();
  for (int j = int(threadIdx.x); j < p.n; j += 512) {
    const T own = sizes[j];
    int place = 0;
#pragma unroll 8
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
  // All reads are issued together. Places outside are clamped.
  const int row = min(place.top + quick, p.height() - 1);
  std::int64_t own[4];
  T x[4], sign[4], size[4];
#pragma unroll
  for (int f = 0; f < 4; ++f)
    own[f] = order[place.at * p.n + min(place.first + slow + f * 8, p.n - 1)];
#pragma unroll
  for (int f = 0; f < 4; ++f) {
    x[f] = stack[own[f] * p.height() + row];
    sign[f] = signs[place.at * p.n + own[f]];
    size[f] = sizes[place.at * p.n + own[f]];
  }
#pragma unroll
  for (int f = 0; f < 4; ++f) {
    const T turned = x[f] * sign[f];
    tile[slow + f * 8][quick] = (row < p.m ? turned / size[f] : turned) + T(0);
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
