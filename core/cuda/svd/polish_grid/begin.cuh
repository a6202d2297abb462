#pragma once

// The first steps: sizes, A^T A, and X over J from its eigenvectors.

#include <cmath>

#include "cuda/launch/early_start.cuh"
#include "cuda/svd/polish_grid/problem.cuh"
#include "cuda/svd/polish_grid/tile.cuh"

namespace keel::cuda {

/// Finds the largest entries of rows and columns, infinity if one is not finite. Non-negative numbers compare like
/// their bits. column_size must start as zeros. One warp per line.
template <typename T, typename Bits>
__global__ void __launch_bounds__(256) grid_sizes(GridProblem<T> p) {
  const std::int64_t at = blockIdx.x / p.kSlices;
  const int slice = int(blockIdx.x % p.kSlices), warp = int(threadIdx.x) / 32,
            lane = int(threadIdx.x) % 32;
  const SvdSource<T> source = p.source(at);
  const bool by_rows = source.along == 1;
  const int lines = by_rows ? p.m : p.n, length = by_rows ? p.n : p.m;
  T* const of_line = by_rows ? p.row_size + at * p.m : p.column_size + at * p.n;
  T* const across = by_rows ? p.column_size + at * p.n : p.row_size + at * p.m;
  for (int line = slice * 8 + warp; line < lines; line += 8 * p.kSlices) {
    T largest = 0;
    for (int k = lane; k < length; k += 32) {
      const T size = UnitScale<T>::magnitude(by_rows ? source(line, k) : source(k, line));
      largest = fmax(largest, size);
      Bits bits;
      memcpy(&bits, &size, sizeof(bits));
      atomicMax(reinterpret_cast<Bits*>(across + k), bits);
    }
    for (int step = 1; step < 32; step *= 2)
      largest = fmax(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    if (lane == 0) of_line[line] = largest;
  }
}

/// The checks at the start of TeamGram::solve. One block per matrix.
template <typename T>
__global__ void __launch_bounds__(256) grid_judge(GridProblem<T> p) {
  await_previous();
  let_next_start();
  const std::int64_t at = blockIdx.x;
  const T *const columns = p.column_size + at * p.n, *const rows = p.row_size + at * p.m;
  T largest = 0;
  for (int j = 0; j < p.n; ++j) largest = fmax(largest, columns[j]);
  const T least = largest / kSteepFrom;
  bool small = false;
  int large_rows = 0;
  for (int j = int(threadIdx.x); j < p.n; j += 256) small = small || columns[j] < least;
  for (int begin = 0; begin < p.m; begin += 256) {
    const int i = begin + int(threadIdx.x);
    large_rows += __syncthreads_count(i < p.m && rows[i] >= least);
  }
  small = __syncthreads_or(small) != 0;
  if (threadIdx.x != 0) return;
  const UnitScale<T> scale(largest);
  const bool is_left = !scale.finite || !(largest > 0) || small || large_rows < p.n;
  p.exponents[at] = scale.exponent;
  p.is_left[p.first + at] = is_left;
  p.state(0, at) = is_left ? kIsLeft : 0;
}

/// Computes A^T A, or I for matrices that are left.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads) grid_square(GridProblem<T> p, T* squares) {
  __shared__ GridTile<T> tile;
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  const SvdSource<T> source = p.source(place.at);
  const UnitScale<T> scale = p.scale(place.at);
  const bool is_left = p.is_left[p.first + place.at];
  T* const to = squares + place.at * p.n * p.n;
  const auto left = [&](int i, int k) { return scale.down(source(k, i)); };
  const auto right = [&](int k, int j) { return scale.down(source(k, j)); };
  const auto put = [&](int i, int j, T x) { to[i * p.n + j] = is_left ? T(i == j) : x; };
  const int depth = is_left ? 0 : p.m;
  if (source.along == 1)
    tile.template multiply<false, false>(p.n, p.n, depth, place.top, place.first, left, right, put);
  else
    tile.template multiply<true, true>(p.n, p.n, depth, place.top, place.first, left, right, put);
}

/// Computes X over J, by columns: A over I times the eigenvectors.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads)
    grid_begin(GridProblem<T> p, const T* all_vectors) {
  __shared__ GridTile<T> tile;
  await_previous();
  let_next_start();
  const GridPlace place(p.height(), p.n);
  const SvdSource<T> source = p.source(place.at);
  const UnitScale<T> scale = p.scale(place.at);
  const bool is_left = p.is_left[p.first + place.at];
  const T* const vectors = all_vectors + place.at * p.n * p.n;
  T* const to = p.one + place.at * p.height() * p.n;
  const auto left = [&](int i, int k) {
    return i >= p.m ? T(i - p.m == k) : is_left ? T(0) : scale.down(source(i, k));
  };
  const auto right = [&](int k, int j) { return vectors[k * p.n + j]; };
  const auto put = [&](int i, int j, T x) { to[std::int64_t(j) * p.height() + i] = x; };
  if (source.along == 1)
    tile.template multiply<true, false>(p.height(), p.n, p.n, place.top, place.first, left, right,
                                        put);
  else
    tile.template multiply<false, false>(p.height(), p.n, p.n, place.top, place.first, left, right,
                                         put);
}

}  // namespace keel::cuda
