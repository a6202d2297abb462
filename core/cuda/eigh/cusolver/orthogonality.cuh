#pragma once

// Restores orthonormality. cuSOLVER's batched solver in float64 returned vectors of the all-ones
// matrix, n = 256, with |V^T V - I| = 1e-6. Newton's iteration for the polar factor,
//     v_i - sum_j (v_i . v_j - [i = j]) v_j / 2,
// squares this error. The overlap of vectors of different eigenvalues is bounded by their
// residuals, so the residuals do not grow.

#include <cmath>
#include <limits>

#include "cuda/launch/scratch.h"
#include "keel/stream.h"

namespace keel::cuda {

inline constexpr int kOrthogonalityRounds = 3;

/// A 64 x 64 tile of a product of n x n matrices, 4 x 4 entries for each of 256 threads.
template <typename T>
struct SquareTile {
  static constexpr int kSize = 64, kDepth = 16, kThreads = 256;
  T a[kDepth][kSize], b[kDepth][kSize];

  /// Calls put(row, column, sum over k of left(row, k) right(k, column)).
  template <typename Left, typename Right, typename Put>
  __device__ void multiply(int n, int top, int left_column, const Left& left, const Right& right,
                           const Put& put) {
    const int thread = threadIdx.x, row = thread / 16 * 4, column = thread % 16 * 4;
    T sum[4][4] = {};
    for (int begin = 0; begin < n; begin += kDepth) {
      for (int at = thread; at < kDepth * kSize; at += kThreads) {
        const int k = begin + at / kSize, i = top + at % kSize, j = left_column + at % kSize;
        a[at / kSize][at % kSize] = k < n && i < n ? left(i, k) : T(0);
        b[at / kSize][at % kSize] = k < n && j < n ? right(k, j) : T(0);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kDepth; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] += a[k][row + i] * b[k][column + j];
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (top + row + i < n && left_column + column + j < n)
          put(top + row + i, left_column + column + j, sum[i][j]);
  }
};

/// The tile of this block: entries from (top, left) on of matrix `index`.
struct TilePlace {
  std::int64_t index;
  int top, left;
  __device__ TilePlace(int n, int size) {
    const int across = (n + size - 1) / size;
    index = blockIdx.x / (across * across);
    top = int(blockIdx.x % (across * across)) / across * size;
    left = int(blockIdx.x) % across * size;
  }
};

/// defect = rows rows^T - I for the matrices marked in `before` (if not null). Marks a matrix in
/// `found` if the defect is more than rounding.
template <typename T>
__global__ void __launch_bounds__(SquareTile<T>::kThreads)
    find_defects(int n, T tolerance, const T* all_rows, const int* before, T* defects, int* found) {
  __shared__ SquareTile<T> tile;
  const TilePlace place(n, SquareTile<T>::kSize);
  if (before != nullptr && !before[place.index]) return;
  const std::int64_t size = std::int64_t(n) * n;
  const T* const rows = all_rows + place.index * size;
  T* const defect = defects + place.index * size;
  bool bad = false;
  tile.multiply(
      n, place.top, place.left, [&](int i, int k) { return rows[std::int64_t(i) * n + k]; },
      [&](int k, int j) { return rows[std::int64_t(j) * n + k]; },
      [&](int i, int j, T product) {
        const T x = i == j ? product - 1 : product;
        defect[std::int64_t(i) * n + j] = x;
        bad = bad || !(fabs(x) <= tolerance);
      });
  if (bad) atomicOr(found + place.index, 1);
}

/// mended = rows - defect rows / 2 for the marked matrices.
template <typename T>
__global__ void __launch_bounds__(SquareTile<T>::kThreads)
    mend_defects(int n, const T* all_rows, const T* defects, const int* marked, T* mended) {
  __shared__ SquareTile<T> tile;
  const TilePlace place(n, SquareTile<T>::kSize);
  if (!marked[place.index]) return;
  const std::int64_t offset = place.index * n * n;
  const T* const rows = all_rows + offset;
  tile.multiply(
      n, place.top, place.left,
      [&](int i, int k) { return defects[offset + std::int64_t(i) * n + k]; },
      [&](int k, int j) { return rows[std::int64_t(k) * n + j]; },
      [&](int i, int j, T product) {
        const std::int64_t at = std::int64_t(i) * n + j;
        mended[offset + at] = rows[at] - product / 2;
      });
}

template <typename T>
__global__ void __launch_bounds__(SquareTile<T>::kThreads)
    adopt_mended(int n, const T* mended, const int* marked, T* rows) {
  const TilePlace place(n, SquareTile<T>::kSize);
  if (!marked[place.index]) return;
  for (int at = threadIdx.x; at < SquareTile<T>::kSize * SquareTile<T>::kSize;
       at += SquareTile<T>::kThreads) {
    const int i = place.top + at / SquareTile<T>::kSize, j = place.left + at % SquareTile<T>::kSize;
    const std::int64_t to = place.index * n * n + std::int64_t(i) * n + j;
    if (i < n && j < n) rows[to] = mended[to];
  }
}

/// Makes the rows of each of `batch` matrices orthonormal to rounding. Matrices that already are
/// stay unchanged.
template <typename T>
void restore_orthogonality(const char* operation, std::int64_t batch, std::int64_t n, T* rows,
                           const Stream& stream) {
  const cudaStream_t queue = native(stream);
  Scratch<T> defects(operation, stream, batch * n * n), mended(operation, stream, batch * n * n);
  Scratch<int> found(operation, stream, kOrthogonalityRounds * batch);
  int* const marks = found;
  check(operation,
        cudaMemsetAsync(marks, 0, sizeof(int) * std::size_t(kOrthogonalityRounds * batch), queue));
  const T tolerance = 2 * std::sqrt(T(n)) * std::numeric_limits<T>::epsilon();
  const std::int64_t across = (n + SquareTile<T>::kSize - 1) / SquareTile<T>::kSize;
  const auto blocks = unsigned(batch * across * across);
  for (int round = 0; round < kOrthogonalityRounds; ++round) {
    int* const marked = marks + round * batch;
    const int* const before = round == 0 ? nullptr : marked - batch;
    find_defects<T><<<blocks, SquareTile<T>::kThreads, 0, queue>>>(int(n), tolerance, rows, before,
                                                                   defects, marked);
    check_launch(operation);
    mend_defects<T>
        <<<blocks, SquareTile<T>::kThreads, 0, queue>>>(int(n), rows, defects, marked, mended);
    check_launch(operation);
    adopt_mended<T><<<blocks, SquareTile<T>::kThreads, 0, queue>>>(int(n), mended, marked, rows);
    check_launch(operation);
  }
}

}  // namespace keel::cuda
