#pragma once

// The first steps: sizes, A^T A, and X over J from its eigenvectors.

#include <cmath>

#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "cuda/svd/polish/grid/problem.cuh"

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
    largest = Lanes<32>::largest(largest);
    if (lane == 0) of_line[line] = largest;
  }
}

/// The checks at the start of TeamGram::solve. One block per matrix.
template <typename T>
__global__ void __launch_bounds__(256) grid_check(GridProblem<T> p) {
  await_previous();
  let_next_start();
  const std::int64_t at = blockIdx.x;
  const T *const columns = p.column_size + at * p.n, *const rows = p.row_size + at * p.m;
  __shared__ T of_warp[8];
  T largest = 0;
  for (int j = int(threadIdx.x); j < p.n; j += 256) largest = fmax(largest, columns[j]);
  largest = Lanes<32>::largest(largest);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < 8; ++warp) largest = fmax(largest, of_warp[warp]);
  const T least = largest / kSteepFrom;
  bool small = false;
  int large_rows = 0;
  for (int j = int(threadIdx.x); j < p.n; j += 256) small = small || columns[j] < least;
  for (int begin = 0; begin < p.m; begin += 256) {
    const int i = begin + int(threadIdx.x);
    large_rows += __syncthreads_count(i < p.m && rows[i] >= least);
  }
  small = __syncthreads_or(small) != 0;
  const UnitScale<T> scale(largest);
  bool unsolved = !scale.finite || !(largest > 0);
  // Beyond kLargestSvd errors may be relative to the largest value.
  if (!unsolved && p.n <= kLargestSvd && (small || large_rows < p.n)) {
    bool tiny = false;
    for (int j = int(threadIdx.x); j < p.n; j += 256)
      tiny = tiny || columns[j] < least_of_dominated<T>(p.n) * largest;
    unsolved = __syncthreads_or(tiny) != 0;
    if (!unsolved) {
      int i0 = 0, j0 = 0;
      while (columns[j0] != largest) ++j0;
      const SvdSource<T> source = p.source(at);
      while (std::abs(source(i0, j0)) != largest) ++i0;
      unsolved = !one_dominates(BlockTeam<32, 1>{}, p.m, p.n, i0, j0,
                                [&](int i, int j) { return scale.down(source(i, j)); });
    }
  }
  if (threadIdx.x != 0) return;
  p.exponents[at] = scale.exponent;
  p.unsolved[p.first + at] = unsolved;
  p.state(0, at) = unsolved ? kUnsolved : 0;
}

/// Computes A^T A, or I for matrices that are left. It is symmetric to the last bit, so rows are written as columns.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_square(GridProblem<T> p, T* squares) {
  using Tile = GridTile<T>;
  __shared__ Tile tile;
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  const int n = p.n, thread = int(threadIdx.x);
  const SvdSource<T> source = p.source(place.at);
  const UnitScale<T> scale = p.scale(place.at);
  const bool unsolved = p.unsolved[p.first + place.at];
  typename Tile::Own own{};
  if (unsolved) {
#pragma unroll
    for (int w = 0; w < Tile::kOwn; ++w)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        own.at[w].at[e] =
            T(place.top + Tile::own_row(thread) + e == place.first + Tile::own_column(thread, w));
  } else {
    if (source.along == 1) {
      const GridFactor<T> a{source.data, source.down, n, p.m, scale.once, scale.again};
      tile.template multiply<false, false>(BlockTeam<32, 1>{}, p.m, place.top, place.first, a, a);
    } else {
      const GridFactor<T> a{source.data, source.along, p.m, n, scale.once, scale.again};
      tile.template multiply<true, true>(BlockTeam<32, 1>{}, p.m, place.top, place.first, a, a);
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < Tile::kOwn; ++w) own.at[w] = tile.sum_of_own(thread, w);
  }
  Tile::write_own(thread, place.top, place.first, own, squares + place.at * n * n, n, n, n);
}

/// Computes X over J, by columns: A times the eigenvectors, and the eigenvectors.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_begin(GridProblem<T> p, const T* all_vectors) {
  using Tile = GridTile<T>;
  __shared__ Tile tile;
  await_previous();
  let_next_start();
  const int n = p.n, m = p.m, height = p.height(), thread = int(threadIdx.x),
            rows_of_x = 32 * p.tiles(m);
  const GridPlace place(rows_of_x + n, n);
  if (p.unsolved[p.first + place.at]) return;
  const T* const vectors = all_vectors + place.at * n * n;
  T* const to = p.one + place.at * height * n;
  if (place.top >= rows_of_x) {
    constexpr int kRow = 33, kEach = 32 / Tile::kWarps;
    T* const transposed = tile.parts[0][0];
    const int top = place.top - rows_of_x, quick = thread % 32, slow = thread / 32;
    T own[kEach];
#pragma unroll
    for (int f = 0; f < kEach; ++f) {
      const int i = min(top + slow + f * Tile::kWarps, n - 1), j = min(place.first + quick, n - 1);
      own[f] = vectors[i * n + j];
    }
#pragma unroll
    for (int f = 0; f < kEach; ++f) transposed[(slow + f * Tile::kWarps) * kRow + quick] = own[f];
    __syncthreads();
#pragma unroll
    for (int f = 0; f < kEach; ++f) {
      const int column = slow + f * Tile::kWarps, i = top + quick, j = place.first + column;
      if (i < n && j < n) to[std::int64_t(j) * height + m + i] = transposed[quick * kRow + column];
    }
    return;
  }
  const SvdSource<T> source = p.source(place.at);
  const UnitScale<T> scale = p.scale(place.at);
  const GridFactor<T> right{vectors, n, n, n};
  if (source.along == 1)
    tile.template multiply<true, false>(
        BlockTeam<32, 1>{}, n, place.top, place.first,
        GridFactor<T>{source.data, source.down, n, m, scale.once, scale.again}, right);
  else
    tile.template multiply<false, false>(
        BlockTeam<32, 1>{}, n, place.top, place.first,
        GridFactor<T>{source.data, source.along, m, n, scale.once, scale.again}, right);
  __syncthreads();
  typename Tile::Own own;
#pragma unroll
  for (int w = 0; w < Tile::kOwn; ++w) own.at[w] = tile.sum_of_own(thread, w);
  Tile::write_own(thread, place.top, place.first, own, to, height, m, n);
}

}  // namespace keel::cuda
