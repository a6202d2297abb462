#pragma once

// One thread per matrix, for large batches of matrices of at most 4 x 4. The matrices of a block
// are consecutive in memory. Its threads transfer them together, with coalesced accesses, through
// shared memory, where each thread has its own matrix.

#include <cstdint>
#include <type_traits>

#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "keel/matrices.h"

namespace keel::cuda::tiny {

inline constexpr int kThreads = 128;
/// The matrices of this block, and that of this thread.
struct Share {
  std::int64_t first;
  int count;

  __device__ explicit Share(std::int64_t batch)
      : first(std::int64_t(blockIdx.x) * kThreads),
        count(int(batch - first < kThreads ? batch - first : kThreads)) {}
  __device__ static int thread() { return int(threadIdx.x); }
  __device__ bool has_one() const { return thread() < count; }
  __device__ std::int64_t index() const { return first + thread(); }
};

/// A ROWS x COLUMNS matrix for every thread of a block. Matrices are an odd number of elements
/// apart, which avoids bank conflicts.
template <typename T, int ROWS, int COLUMNS>
struct Tile {
  static constexpr int kSize = ROWS * COLUMNS, kStep = kSize + (kSize + 1) % 2;
  T entry[kThreads * kStep];

  __device__ T* own() { return entry + Share::thread() * kStep; }
  __device__ T& operator()(int i, int j) { return own()[i * COLUMNS + j]; }

  /// Requires a __syncthreads() before the matrices are read.
  __device__ void fetch(const Share& share, const Rectangles<const T>& from) {
    T waiting[kSize];  // so that all loads are in flight at once
    for_each(share, from, [&](int k, int, std::int64_t there) { waiting[k] = from.data[there]; });
    for_each(share, from, [&](int k, int here, std::int64_t) { entry[here] = waiting[k]; });
  }
  /// Requires a __syncthreads() before it.
  __device__ void put(const Share& share, const Rectangles<T>& to) {
    for_each(share, to, [&](int, int here, std::int64_t there) { to.data[there] = entry[here]; });
  }

 private:
  /// Calls body(k, here, there) for the k-th number of this thread: its index in this tile and in
  /// the batch.
  template <typename U, typename Body>
  __device__ __forceinline__ static void for_each(const Share& share, const Rectangles<U>& batch,
                                                  const Body& body) {
    if (batch.row_stride == COLUMNS && batch.batch_stride == kSize) {  // dense: no divisions
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        const int at = Share::thread() + k * kThreads;
        if (at < share.count * kSize)
          body(k, kStep == kSize ? at : at + at / kSize, share.first * kSize + at);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        const int at = Share::thread() + k * kThreads, b = at / kSize, rest = at % kSize;
        if (b < share.count)
          body(k, b * kStep + rest,
               (share.first + b) * batch.batch_stride + rest / COLUMNS * batch.row_stride +
                   rest % COLUMNS);
      }
    }
  }
};

template <typename T>
__host__ __device__ Rectangles<T> rectangles(const Matrices<T>& m) {
  return {m.data, m.batch, m.n, m.n, m.row_stride, m.batch_stride};
}
/// Consecutive numbers, `count` per matrix, as matrices of one row.
template <typename T>
__host__ __device__ Rectangles<T> rows_of(T* numbers, std::int64_t batch, std::int64_t count) {
  return {numbers, batch, 1, count, count, count};
}

template <typename... Parameters>
void launch(const char* operation, void (*kernel)(Parameters...), std::int64_t batch,
            const Stream& stream, std::type_identity_t<Parameters>... arguments) {
  cuda::launch(operation, kernel,
               {.blocks = unsigned(pieces<std::int64_t>(batch, kThreads)), .threads = kThreads},
               stream, arguments...);
}

// --- Changes of basis in the registers of one thread.

template <typename T, int N>
struct Registers {
  T at[N][N];

  __device__ __forceinline__ void take(Tile<T, N, N>& tile) {
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) at[i][j] = tile(i, j);
  }
};

/// a^T b
template <typename T, int N>
__device__ __forceinline__ Registers<T, N> transposed_times(const Registers<T, N>& a,
                                                            const Registers<T, N>& b) {
  Registers<T, N> c;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) {
      T sum = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) sum += a.at[k][i] * b.at[k][j];
      c.at[i][j] = sum;
    }
  return c;
}

/// to = v w v^T for symmetric w. Computes one triangle and mirrors it.
template <typename T, int N>
__device__ __forceinline__ void out_of_basis(const Registers<T, N>& v, const Registers<T, N>& w,
                                             Tile<T, N, N>& to) {
  Registers<T, N> p;  // w v^T
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) {
      T sum = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) sum += w.at[i][k] * v.at[j][k];
      p.at[i][j] = sum;
    }
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      T sum = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) sum += v.at[i][k] * p.at[k][j];
      to(i, j) = sum;
      to(j, i) = sum;
    }
}

}  // namespace keel::cuda::tiny
