#pragma once

// The last steps: sizes, signs, order, and the results.

#include <cmath>

#include "cuda/eigh/sign.cuh"
#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "cuda/svd/polish/grid/problem.cuh"
#include "formulas/order.h"

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
  bool rotates = (state & kUnsolved) != 0;
  if (!rotates && !(state & kDone))
    for (int t = lane; t < tiles; t += 32)
      rotates = rotates || p.found[at * tiles + t].rotates != 0;
  if (__any_sync(0xffffffffu, rotates)) {  // not converged
    if (lane == 0 && which % p.n == 0) p.unsolved[p.first + at] = true;
    return;
  }
  const T* const own = p.stack(state, at) + which % p.n * p.height();
  const int begin = p.wide() ? p.m : 0, end = p.wide() ? p.height() : p.m;
  T square = 0;
#pragma unroll 4
  for (int i = lane; i < p.m; i += 32) square += own[i] * own[i];
  LargestEntry<T> largest;
#pragma unroll 4
  for (int i = begin + lane; i < end; i += 32) largest.offer(own[i], i);
  square = Lanes<32>::sum(square);
  largest.share(32);
  if (lane != 0) return;
  sizes[which] = std::sqrt(square);
  signs[which] = largest.with_sign(T(1));
}

/// Writes the values in descending order, and the order of the columns.
template <typename T>
__global__ void __launch_bounds__(512)
    grid_order(GridProblem<T> p, const T* all_sizes, int* order, T* values, SvdStatus* status) {
  await_previous();
  let_next_start();
  const std::int64_t at = blockIdx.x, b = p.first + at;
  if (p.unsolved[b]) return;
  __shared__ T sizes[kLargestWide];
  for (int j = int(threadIdx.x); j < p.n; j += 512) sizes[j] = all_sizes[at * p.n + j];
  __syncthreads();
  for (int j = int(threadIdx.x); j < p.n; j += 512) {
    const T own = sizes[j];
    const int place = count_before(sizes, p.n, j, own, 0, 1);
    order[at * p.n + place] = j;
    values[b * p.n + place] = ldexp(own, p.exponents[at]);
  }
  if (status != nullptr && threadIdx.x == 0) status[b] = SvdStatus::converged;
}

/// Writes U and V^T.
template <typename T>
__global__ void __launch_bounds__(256)
    grid_store(GridProblem<T> p, int step, const T* sizes, const T* signs, const int* order,
               Rectangles<T> all_left, Rectangles<T> all_right) {
  __shared__ T tile[32][33];
  await_previous();
  let_next_start();
  const GridPlace place(p.height(), p.n);
  const std::int64_t b = p.first + place.at;
  if (p.unsolved[b]) return;
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
    const T own_x = x[f] * sign[f];
    tile[slow + f * 8][quick] = (row < p.m ? own_x / size[f] : own_x) + T(0);
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
      const bool of_x = i < p.m, of_left = of_x != p.wide();
      if (of_left == along_rows) continue;
      const int row = of_x ? i : i - p.m;
      (of_left ? left[row * down + c] : right[c * across + row]) = tile[k][r];
    }
  }
}

}  // namespace keel::cuda
