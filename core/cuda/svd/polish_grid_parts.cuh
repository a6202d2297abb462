#pragma once

// The steps of polish.h for matrices that no block holds: many blocks a matrix, X over J in global memory, a launch a step.
// A matrix that is done, or left, keeps what it has: a step that finds no angle copies.

#include <cmath>
#include <limits>

#include "cuda/svd/polish.h"
#include "keel/matrices.h"

namespace keel::cuda {

/// 32 x 32 entries of a product, four to each of 256 threads.
template <typename T>
struct GridTile {
  static constexpr int kSize = 32, kThreads = 256;
  T a[kSize][kSize + 1], b[kSize][kSize + 1];  ///< by the summed index, then by row or column

  /// put(i, j, sum over k of left(i, k) right(k, j)) for i < rows, j < columns, from (top, first) on. Where a factor is
  /// read along k, neighbouring threads have neighbouring k.
  template <bool LEFT_ALONG, bool RIGHT_ALONG, typename Left, typename Right, typename Put>
  __device__ void multiply(int rows, int columns, int depth, int top, int first, const Left& left,
                           const Right& right, const Put& put) {
    const int thread = int(threadIdx.x), row = thread / 16 * 2, column = thread % 16 * 2;
    T sum[2][2] = {};
    for (int begin = 0; begin < depth; begin += kSize) {
#pragma unroll
      for (int part = 0; part < kSize * kSize; part += kThreads) {
        const int quick = (part + thread) % kSize, slow = (part + thread) / kSize;
        const int ka = LEFT_ALONG ? quick : slow, i = LEFT_ALONG ? slow : quick;
        const int kb = RIGHT_ALONG ? quick : slow, j = RIGHT_ALONG ? slow : quick;
        a[ka][i] = begin + ka < depth && top + i < rows ? left(top + i, begin + ka) : T(0);
        b[kb][j] = begin + kb < depth && first + j < columns ? right(begin + kb, first + j) : T(0);
      }
      __syncthreads();
#pragma unroll 8
      for (int k = 0; k < kSize; ++k) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j) sum[i][j] += a[k][row + i] * b[k][column + j];
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (top + row + i < rows && first + column + j < columns)
          put(top + row + i, first + column + j, sum[i][j]);
  }
};

/// What is kept for the matrices under way.
template <typename T>
struct GridProblem {
  static constexpr int kSlices = 32;  ///< blocks that look over a matrix, and the sums they leave
  Rectangles<const T> matrices;
  std::int64_t first;
  int m, n;
  int* exponents;
  bool* is_left;
  T *column_size, *row_size;  ///< n and m for each
  T *sums, *turns;  ///< of each slice: the squares of angles, and whether one is to be taken out

  __host__ __device__ int height() const { return m + n; }
  __device__ bool wide() const { return matrices.rows < matrices.columns; }
  __device__ SvdSource<T> source(std::int64_t at) const {
    return {matrices[first + at], wide() ? 1 : matrices.row_stride,
            wide() ? matrices.row_stride : 1};
  }
  __device__ UnitScale<T> scale(std::int64_t at) const {
    UnitScale<T> scale(T(1));
    scale.set(exponents[at]);
    return scale;
  }
  /// As TeamPolish::measure. In the same order for all.
  __device__ T angles(std::int64_t at) const {
    T sum = 0, turned = 0;
    for (int s = 0; s < kSlices; ++s) {
      sum += sums[at * kSlices + s];
      turned += turns[at * kSlices + s];
    }
    return turned > 0 ? sum : T(0);
  }
};

/// A block's tile of a matrix of that many tiles.
struct GridPlace {
  std::int64_t at;
  int top, first;
  __device__ GridPlace(int rows, int columns) {
    const int down = (rows + 31) / 32, across = (columns + 31) / 32;
    at = blockIdx.x / (down * across);
    const int tile = int(blockIdx.x % (down * across));
    top = tile / across * 32;
    first = tile % across * 32;
  }
};

/// The largest entries of rows and of columns, infinity where one is not finite. Numbers that are not negative compare
/// like their bits; column_size begins as zeros. A warp a row.
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

/// What TeamGram::solve finds out before it begins. A block a matrix.
template <typename T>
__global__ void __launch_bounds__(256) grid_judge(GridProblem<T> p) {
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
  p.exponents[at] = scale.exponent;
  p.is_left[p.first + at] = !scale.finite || !(largest > 0) || small || large_rows < p.n;
}

/// A^T A, or I for what is left.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads) grid_square(GridProblem<T> p, T* squares) {
  __shared__ GridTile<T> tile;
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

/// X over J, by columns: A over I times the eigenvectors.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads)
    grid_begin(GridProblem<T> p, const T* all_vectors, T* stacks) {
  __shared__ GridTile<T> tile;
  const GridPlace place(p.height(), p.n);
  const SvdSource<T> source = p.source(place.at);
  const UnitScale<T> scale = p.scale(place.at);
  const bool is_left = p.is_left[p.first + place.at];
  const T* const vectors = all_vectors + place.at * p.n * p.n;
  T* const to = stacks + place.at * p.height() * p.n;
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

/// The columns' products.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads)
    grid_products(GridProblem<T> p, const T* stacks, T* products) {
  __shared__ GridTile<T> tile;
  const GridPlace place(p.n, p.n);
  const T* const x = stacks + place.at * p.height() * p.n;
  T* const to = products + place.at * p.n * p.n;
  tile.template multiply<true, true>(
      p.n, p.n, p.m, place.top, place.first,
      [&](int i, int k) { return x[std::int64_t(i) * p.height() + k]; },
      [&](int k, int j) { return x[std::int64_t(j) * p.height() + k]; },
      [&](int i, int j, T sum) { to[j * p.n + i] = sum; });
}

/// K, entry (i, j) at j n + i, and what TeamPolish::measure finds, a slice a block.
template <typename T>
__global__ void __launch_bounds__(256)
    grid_angles(GridProblem<T> p, const T* all_products, T* all_angles) {
  __shared__ T of_warp[8];
  const std::int64_t at = blockIdx.x / p.kSlices;
  const int slice = int(blockIdx.x % p.kSlices), n = p.n;
  const T* const w = all_products + at * n * n;
  T* const angles = all_angles + at * n * n;
  const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(n));
  T sum = 0;
  bool turns = false;
  for (int j = slice; j < n; j += p.kSlices) {
    const T own = w[j * n + j], size = tolerance * std::sqrt(own);
    for (int i = int(threadIdx.x); i < n; i += 256) {
      const T other = w[i * n + i];
      const T angle =
          i == j ? T(0) : polish_angle(w[j * n + i], own, other, size * std::sqrt(other), turns);
      angles[j * n + i] = angle;
      sum += polish_square(angle);
    }
  }
  for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  const bool any = __syncthreads_or(turns) != 0;
  if (threadIdx.x != 0) return;
  sum = 0;
  for (const T each : of_warp) sum += each;
  p.sums[at * p.kSlices + slice] = sum;
  p.turns[at * p.kSlices + slice] = T(any);
}

/// TeamPolish::turn_neighbours, where angles are too large.
template <typename T>
__global__ void __launch_bounds__(256)
    grid_neighbours(GridProblem<T> p, int begin, const T* all_products, const T* all_angles,
                    T* stacks) {
  const int n = p.n, pairs = (n - begin) / 2;
  const std::int64_t at = blockIdx.x / pairs;
  if (!(p.angles(at) > PolishReach<T>::kThird)) return;
  const int one = begin + 2 * int(blockIdx.x % pairs), two = one + 1;
  if (all_angles[at * n * n + one * n + two] == 0) return;
  const T* const w = all_products + at * n * n;
  const ColumnTurn<T> turn(w[one * n + one], w[two * n + two], w[one * n + two]);
  T *const x = stacks + (at * n + one) * p.height(), *const y = x + p.height();
  for (int i = int(threadIdx.x); i < p.height(); i += 256) turn(x[i], y[i]);
}

/// to = from + factor from K where the angles are within reach, and more than `least`; else from.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads)
    grid_turn(GridProblem<T> p, T least, T factor, const T* all_angles, const T* from, T* to) {
  __shared__ GridTile<T> tile;
  const GridPlace place(p.height(), p.n);
  const T size = p.angles(place.at);
  const bool turns = size > least && size <= PolishReach<T>::kThird;
  const T* const angles = all_angles + place.at * p.n * p.n;
  const std::int64_t offset = place.at * p.height() * p.n;
  tile.template multiply<false, true>(
      p.height(), p.n, turns ? p.n : 0, place.top, place.first,
      [&](int i, int k) { return from[offset + std::int64_t(k) * p.height() + i]; },
      [&](int k, int j) { return angles[j * p.n + k]; },
      [&](int i, int j, T sum) {
        const std::int64_t where = offset + std::int64_t(j) * p.height() + i;
        to[where] = from[where] + factor * sum;
      });
}

/// K^2, where it is asked for.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads)
    grid_square_angles(GridProblem<T> p, T least, const T* all_angles, T* all_squares) {
  __shared__ GridTile<T> tile;
  const GridPlace place(p.n, p.n);
  const T size = p.angles(place.at);
  if (!(size > least && size <= PolishReach<T>::kThird)) return;
  const T* const angles = all_angles + place.at * p.n * p.n;
  T* const squares = all_squares + place.at * p.n * p.n;
  tile.template multiply<false, true>(
      p.n, p.n, p.n, place.top, place.first, [&](int i, int k) { return angles[k * p.n + i]; },
      [&](int k, int j) { return angles[j * p.n + k]; },
      [&](int i, int j, T sum) { squares[j * p.n + i] = sum; });
}

/// Of each column its size and what X's and J's columns are multiplied with. A warp a column.
template <typename T>
__global__ void __launch_bounds__(256)
    grid_measure(GridProblem<T> p, std::int64_t count, const T* stacks, T* sizes, T* signs) {
  const std::int64_t which = std::int64_t(blockIdx.x) * 8 + threadIdx.x / 32;
  if (which >= count * p.n) return;
  const std::int64_t at = which / p.n;
  const int lane = int(threadIdx.x) % 32;
  const bool converged = !p.is_left[p.first + at] && p.angles(at) == 0;
  const T* const own = stacks + which * p.height();
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

/// Values in descending order, and which column is whose.
template <typename T>
__global__ void __launch_bounds__(512)
    grid_order(GridProblem<T> p, const T* all_sizes, int* order, T* values, SvdStatus* status) {
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

/// U and V^T.
template <typename T>
__global__ void __launch_bounds__(256)
    grid_give(GridProblem<T> p, const T* stacks, const T* sizes, const T* signs, const int* order,
              Rectangles<T> all_left, Rectangles<T> all_right) {
  __shared__ T tile[32][33];
  const GridPlace place(p.height(), p.n);
  const std::int64_t b = p.first + place.at;
  if (p.is_left[b]) return;
  const int quick = int(threadIdx.x) % 32, slow = int(threadIdx.x) / 32;
  for (int part = slow; part < 32; part += 8) {
    const int i = place.top + quick, c = place.first + part;
    if (i >= p.height() || c >= p.n) continue;
    const std::int64_t column = place.at * p.n + order[place.at * p.n + c];
    const T x = stacks[column * p.height() + i] * signs[column];
    tile[part][quick] = (i < p.m ? x / sizes[column] : x) + T(0);
  }
  __syncthreads();
  T *const left = all_left[b], *const right = all_right[b];
  const std::int64_t down = all_left.row_stride, across = all_right.row_stride;
  for (int part = slow; part < 32; part += 8) {
    // U is X's where the matrix is tall, J's where it is wide; what is written by columns is written along them.
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
