#pragma once

// Symmetric matrix, n <= N -> tridiagonal, one block of eight warps per matrix. The lower triangle
// stays in registers, in squares of 32 (whole ones on the diagonal): warp w has rows w, w + 8, ...,
// lane l has columns l, l + 32, ... of them. A reflection is applied during the product of the next
// one, so every entry is touched once per column. Every warp computes the reflector itself, so a
// column needs only two barriers.

#include "cuda/eigh/block/team.cuh"
#include "cuda/eigh/middle/parts.cuh"
#include "formulas/householder.h"
#include "formulas/scale.h"

namespace keel::cuda {

/// The state of a row between columns: its entry of the last product, of the last reflector x, and
/// of the next column, before the last reflection.
template <typename T>
struct alignas(16) ReducePending {
  T product, x, column, none = 0;  ///< none: padding to whole 16-byte accesses
};

/// A row's entries of the last reflection, v and w, and of the new reflector x.
template <typename T>
struct alignas(16) ReduceRow {
  T v, w, x, none = 0;
};

template <typename T, int N>
struct ReduceStorage {
  static constexpr int kWarps = 8;
  T triangle[N * (N + 1) / 2];
  alignas(16) ReducePending<T> pending[N];
  alignas(16) ReduceRow<T> rows[kWarps][N / kWarps];  ///< each warp's own
  T partial[kWarps][N], row_sum[N], column[N];
  T exchange[kWarps];
  int alive[N], order[N], busy[kWarps];
};

template <typename T, int N>
struct Reducer {
  static constexpr int kWarps = ReduceStorage<T, N>::kWarps, kThreads = 32 * kWarps;
  static constexpr int kSquares = N / 32, kRows = N / kWarps, kRowsInSquare = 32 / kWarps;
  static constexpr int kGroup = 4;  ///< rows processed together, for independent sums
  ReduceStorage<T, N>& s;
  MiddleParts<T, N>& parts;
  int n, warp, lane;
  T entry[kRows][kSquares];  ///< [i][j], j <= i / kRowsInSquare: row warp + 8 i, column lane + 32 j
  T scale = 0;               ///< of the last reflection

  __device__ __forceinline__ Reducer(ReduceStorage<T, N>& storage, MiddleParts<T, N>& target,
                                     int size)
      : s(storage), parts(target), n(size), warp(threadIdx.x / 32), lane(threadIdx.x % 32) {}

  /// Loads the lower triangle into shared memory. Returns the largest magnitude, or infinity if an
  /// entry is not finite.
  template <typename Entry>
  __device__ __forceinline__ T load(const Entry& matrix) {
    for (int c = threadIdx.x; c < N; c += kThreads) s.alive[c] = 0;
    __syncthreads();
    T size = 0;
    unsigned neighbours = 0;   // bit j: some row has an entry in column lane + 32 j
    constexpr int kAhead = 4;  // rows in flight at once
    for (int top = warp; top < n; top += kAhead * kWarps) {
      T x[kAhead][kSquares];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
#pragma unroll
        for (int j = 0; j < kSquares; ++j) {
          const int r = top + kWarps * i, c = lane + 32 * j;
          x[i][j] = r < n && c <= r ? matrix(r, c) : T(0);
        }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int r = top + kWarps * i;
        bool neighbour = false;
#pragma unroll
        for (int j = 0; j < kSquares; ++j) {
          const int c = lane + 32 * j;
          if (r < n && c <= r) s.triangle[r * (r + 1) / 2 + c] = x[i][j];
          size = fmax(size, UnitScale<T>::magnitude(x[i][j]));
          if (c < r && x[i][j] != 0) {
            neighbour = true;
            neighbours |= 1u << j;
          }
        }
        if (__any_sync(0xffffffffu, neighbour) && lane == 0) atomicOr(s.alive + r, 1);
      }
    }
    for (int j = 0; j < kSquares; ++j)
      if (neighbours >> j & 1) atomicOr(s.alive + lane + 32 * j, 1);
    size = Lanes<32>::largest(size);
    if (lane == 0) s.exchange[warp] = size;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) size = fmax(size, s.exchange[w]);
    return size;
  }

  /// Puts rows without a neighbour (dead channels) last, where no reflector touches them.
  __device__ __forceinline__ void order_rows() {
    const int r = threadIdx.x;
    const bool alive = r < n && s.alive[r] != 0;
    const unsigned mask = __ballot_sync(0xffffffffu, alive);
    if (lane == 0) s.busy[warp] = __popc(mask);
    __syncthreads();
    int before = __popc(mask & ((1u << lane) - 1)), busy = 0;
    for (int w = 0; w < kWarps; ++w) {
      before += w < warp ? s.busy[w] : 0;
      busy += s.busy[w];
    }
    if (r < n) s.order[alive ? before : busy + r - before] = r;
    __syncthreads();
    if (r < n) parts.order[r] = s.order[r];
  }

  /// Moves the triangle into registers, in that order and scaled.
  __device__ __forceinline__ void take(const UnitScale<T>& scale) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = warp + kWarps * i, row = r < n ? s.order[r] : 0;
#pragma unroll
      for (int j = 0; j <= i / kRowsInSquare; ++j) {
        const int c = lane + 32 * j, column = c < n ? s.order[c] : 0;
        const int low = max(row, column), high = min(row, column);
        const bool exists = scale.finite && r < n && c < n;
        entry[i][j] = exists ? scale.down(s.triangle[low * (low + 1) / 2 + high]) : T(0);
        if (j == 0 && lane == 0) s.pending[r] = {T(0), T(0), entry[i][0]};
      }
    }
    __syncthreads();
  }

  /// Columns 32 SQUARE to 32 SQUARE + 31: the rest of the matrix starts in that square.
  template <int SQUARE>
  __device__ __forceinline__ void work_columns() {
    for (int k = 32 * SQUARE; k < min(n, 32 * SQUARE + 32); ++k) work_column<SQUARE>(k);
  }

  template <int SQUARE>
  __device__ __forceinline__ void work_column(int k) {
    T v[kSquares], w[kSquares], x[kSquares];
    T along = 0;
#pragma unroll
    for (int j = SQUARE; j < kSquares; ++j) {
      const ReducePending<T> pending = s.pending[lane + 32 * j];
      v[j] = pending.x;
      w[j] = pending.product;
      x[j] = pending.column;
      along += w[j] * v[j];
    }
    const T half = scale / 2 * warp_sum(along);
    // The last reflection is A - v w^T - w v^T with w = p - half v. Apply it to column k.
    const auto w_of = [&](T product, T last) { return fma(-half, last, product); };
    const ReducePending<T> own = s.pending[k], next = s.pending[min(k + 1, N - 1)];
    const T v_k = own.x, w_k = w_of(own.product, v_k);
    const auto reflected = [&](T column, T last, T last_w) {
      return fma(-last, w_k, fma(-last_w, v_k, column));
    };
    const T alpha = k + 1 < n ? reflected(next.column, next.x, w_of(next.product, next.x)) : T(0);
    T tail = 0;
#pragma unroll
    for (int j = SQUARE; j < kSquares; ++j) {
      const int c = lane + 32 * j;
      w[j] = w_of(w[j], v[j]);
      x[j] = reflected(x[j], v[j], w[j]);
      if (warp == 0 && c == k) parts.diagonal[k] = x[j];
      if (j <= SQUARE + 1 && c <= k + 1) x[j] = 0;
      tail += x[j] * x[j];
    }
    if (k + 1 == n) return;
    const Householder<T> made(alpha, warp_sum(tail));
    scale = made.scale;
    const T head = alpha - made.beta;
#pragma unroll
    for (int j = SQUARE; j < kSquares; ++j) {
      if (j <= SQUARE + 1 && lane + 32 * j == k + 1) x[j] = head;
      if (!made.reflects) x[j] = 0;
      if (warp == k % kWarps) parts.reflectors[k * N + lane + 32 * j] = x[j];
      if (warp == lane % kWarps) s.rows[warp][(lane + 32 * j) / kWarps] = {v[j], w[j], x[j]};
    }
    if (threadIdx.x == 0) {
      parts.coupling[k] = made.beta;
      parts.reflector_scale[k] = scale;
    }
    __syncwarp();

    // Apply the last reflection and multiply by the new reflector: row sums are computed here,
    // column sums by all warps. While one group of rows is multiplied, the next is loaded and the
    // sums of the previous one are finished.
    constexpr int kFirst = SQUARE * kRowsInSquare;
    static_assert(kRowsInSquare % kGroup == 0);
    const bool beyond = SQUARE + 1 < kSquares && (k + 1) / 32 != SQUARE;
    T down[kSquares] = {}, sums[kGroup], last_sums[kGroup];
    ReduceRow<T> row[kGroup], next_row[kGroup];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) next_row[g] = s.rows[warp][kFirst + g];
#pragma unroll
    for (int group = kFirst; group <= kRows; group += kGroup) {
      const int diagonal = group / kRowsInSquare;
      // Skip rows beyond n. Without this branch the compiler prefetches more than fits into
      // registers.
      if (kWarps * (group - kGroup) >= n) break;
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        row[g] = next_row[g];
        last_sums[g] = sums[g];
        sums[g] = 0;
        if (group + kGroup < kRows) next_row[g] = s.rows[warp][group + kGroup + g];
      }
      if (group < kRows) {
#pragma unroll
        for (int j = SQUARE; j <= diagonal; ++j)
#pragma unroll
          for (int g = 0; g < kGroup; ++g) {
            T& a = entry[group + g][j];
            a = fma(-row[g].v, w[j], fma(-row[g].w, v[j], a));
            sums[g] = fma(a, x[j], sums[g]);
            if (j < diagonal) down[j] = fma(a, row[g].x, down[j]);
          }
          // The next column, from the square that contains it.
#pragma unroll
        for (int g = 0; g < kGroup; ++g) {
          const T following = beyond && diagonal > SQUARE
                                  ? entry[group + g][min(SQUARE + 1, diagonal)]
                                  : entry[group + g][SQUARE];
          if (lane == (k + 1) % 32) s.column[warp + kWarps * (group + g)] = following;
        }
      }
      if (group > kFirst) {
        const T sum = warp_sums(lane, last_sums);
        constexpr int kShare = 32 / kGroup;
        if (lane % kShare == 0) s.row_sum[warp + kWarps * (group - kGroup + lane / kShare)] = sum;
      }
    }
#pragma unroll
    for (int j = SQUARE; j < kSquares; ++j) s.partial[warp][lane + 32 * j] = down[j];
    __syncthreads();
    const int c = threadIdx.x;
    if (c < N && c >= 32 * SQUARE) {
      T sum = s.row_sum[c], own_x = 0;
#pragma unroll
      for (int other = 0; other < kWarps; ++other) sum += s.partial[other][c];
#pragma unroll
      for (int j = SQUARE; j < kSquares; ++j)
        if (j == warp) own_x = x[j];
      const bool exists = c > k && c < n;
      s.pending[c] = {exists ? scale * sum : T(0), own_x, exists ? s.column[c] : T(0)};
    }
    __syncthreads();
  }

  template <int SQUARE = 0>
  __device__ __forceinline__ void work_all() {
    work_columns<SQUARE>();
    if constexpr (SQUARE + 1 < kSquares) work_all<SQUARE + 1>();
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(Reducer<T, N>::kThreads, 1)
    reduce_kernel(Matrices<const T> matrices, std::int64_t first, const bool* wanted,
                  MiddleParts<T, N>* all) {
  extern __shared__ __align__(16) unsigned char memory[];
  if (wanted != nullptr && !wanted[first + blockIdx.x]) return;
  MiddleParts<T, N>& parts = all[blockIdx.x];
  const T* const source = matrices[first + blockIdx.x];
  Reducer<T, N> reducer(*reinterpret_cast<ReduceStorage<T, N>*>(memory), parts, int(matrices.n));
  const UnitScale<T> scale(
      reducer.load([&](int r, int c) { return source[r * matrices.row_stride + c]; }));
  if (threadIdx.x == 0) {
    parts.exponent = scale.exponent;
    parts.finite = scale.finite;
  }
  reducer.order_rows();
  reducer.take(scale);
  reducer.work_all();
}

}  // namespace keel::cuda
