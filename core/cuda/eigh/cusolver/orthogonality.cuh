#pragma once

// Restores orthonormality. cuSOLVER's batched solver in float64 returned vectors of the all-ones
// matrix, n = 256, with |V^T V - I| = 1e-6. Newton's iteration for the polar factor,
//     v_i - sum_j (v_i . v_j - [i = j]) v_j / 2,
// squares this error. The overlap of vectors of different eigenvalues is bounded by their
// residuals, so the residuals do not grow.

#include <cmath>
#include <limits>

#include "cuda/dense/product.cuh"
#include "cuda/launch/scratch.h"
#include "keel/stream.h"

namespace keel::cuda {

inline constexpr int kOrthogonalityRounds = 3;

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
  /// Calls body(row, column, entry) for those of this thread's entries that exist.
  template <typename T, typename Body>
  __device__ void for_each_entry(int n, const T (&own)[4][4], const Body& body) const {
    const int row = top + ProductTile<T>::row(), column = left + ProductTile<T>::column();
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (row + i < n && column + j < n) body(row + i, column + j, own[i][j]);
  }
};

/// defect = rows rows^T - I for the matrices marked in `before` (if not null). Marks a matrix in
/// `found` if the defect is more than rounding.
template <typename T>
__global__ void __launch_bounds__(ProductTile<T>::kThreads)
    find_defects(int n, T tolerance, const T* all_rows, const int* before, T* defects, int* found) {
  __shared__ ProductTile<T> tile;
  const TilePlace place(n, ProductTile<T>::kSize);
  if (before != nullptr && !before[place.index]) return;
  const std::int64_t size = std::int64_t(n) * n;
  const T* const rows = all_rows + place.index * size;
  T* const defect = defects + place.index * size;
  T sum[4][4] = {};
  tile.template multiply<true, false>(
      n, place.top, place.left, [&](int i, int k) { return rows[std::int64_t(i) * n + k]; },
      [&](int k, int j) { return rows[std::int64_t(j) * n + k]; }, sum);
  bool bad = false;
  place.for_each_entry(n, sum, [&](int i, int j, T product) {
    const T x = i == j ? product - 1 : product;
    defect[std::int64_t(i) * n + j] = x;
    bad = bad || !(fabs(x) <= tolerance);
  });
  if (bad) atomicOr(found + place.index, 1);
}

/// mended = rows - defect rows / 2 for the marked matrices.
template <typename T>
__global__ void __launch_bounds__(ProductTile<T>::kThreads)
    mend_defects(int n, const T* all_rows, const T* defects, const int* marked, T* mended) {
  __shared__ ProductTile<T> tile;
  const TilePlace place(n, ProductTile<T>::kSize);
  if (!marked[place.index]) return;
  const std::int64_t offset = place.index * n * n;
  const T* const rows = all_rows + offset;
  T sum[4][4] = {};
  tile.template multiply<true, true>(
      n, place.top, place.left,
      [&](int i, int k) { return defects[offset + std::int64_t(i) * n + k]; },
      [&](int k, int j) { return rows[std::int64_t(k) * n + j]; }, sum);
  place.for_each_entry(n, sum, [&](int i, int j, T product) {
    const std::int64_t at = std::int64_t(i) * n + j;
    mended[offset + at] = rows[at] - product / 2;
  });
}

template <typename T>
__global__ void __launch_bounds__(ProductTile<T>::kThreads)
    adopt_mended(int n, const T* mended, const int* marked, T* rows) {
  const TilePlace place(n, ProductTile<T>::kSize);
  if (!marked[place.index]) return;
  for (int at = threadIdx.x; at < ProductTile<T>::kSize * ProductTile<T>::kSize;
       at += ProductTile<T>::kThreads) {
    const int i = place.top + at / ProductTile<T>::kSize,
              j = place.left + at % ProductTile<T>::kSize;
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
  const std::int64_t across = (n + ProductTile<T>::kSize - 1) / ProductTile<T>::kSize;
  const auto blocks = unsigned(batch * across * across);
  for (int round = 0; round < kOrthogonalityRounds; ++round) {
    int* const marked = marks + round * batch;
    const int* const before = round == 0 ? nullptr : marked - batch;
    find_defects<T><<<blocks, ProductTile<T>::kThreads, 0, queue>>>(int(n), tolerance, rows, before,
                                                                    defects, marked);
    check_launch(operation);
    mend_defects<T>
        <<<blocks, ProductTile<T>::kThreads, 0, queue>>>(int(n), rows, defects, marked, mended);
    check_launch(operation);
    adopt_mended<T><<<blocks, ProductTile<T>::kThreads, 0, queue>>>(int(n), mended, marked, rows);
    check_launch(operation);
  }
}

}  // namespace keel::cuda
