#pragma once

// The chunks' sets of sums added up in float64, in a fixed order, and what becomes of them.

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#include "cuda/launch/early_start.cuh"
#include "keel/matrices.h"
#include "keel/moments.h"

namespace keel::cuda {

inline constexpr int kFinishEntries = 32;  // of a block: a warp reads neighbours
inline constexpr int kFinishShares = 16;   // at most: the sets are shared out over as many warps

/// Partial moments, moved from the shift they were taken about to the one that was asked for.
template <typename A>
struct PartialResult {
  static constexpr bool kSymmetric = true;
  double* sums;
  const double* wanted;  ///< null: zero
  const A* shift;        ///< null where there are no samples
  double count;
  int channels;

  __device__ double move(int c) const {
    return (shift != nullptr ? double(shift[c]) : 0) - (wanted != nullptr ? wanted[c] : 0);
  }
  __device__ void write_channel(int c, double sum) const {
    if (c == 0) sums[0] = count;
    sums[1 + c] = sum + count * move(c);
  }
  __device__ void write(int d, int i, int j, double product, double sum_i, double sum_j) const {
    double* const second = sums + 1 + channels;
    const double k_i = move(i), k_j = move(j),
                 entry = product + (sum_i * k_j + k_i * sum_j + count * (k_i * k_j));
    second[std::int64_t(i) * d + j % d] = entry;
    second[std::int64_t(j) * d + i % d] = entry;
  }
};

/// Mean and covariance.
template <typename A, typename Shift = A>
struct MomentsResult {
  static constexpr bool kSymmetric = true;
  A* mean;
  Matrices<A> covariance;
  const Shift* shift;
  double count;  ///< NaN where there are no samples

  __device__ void write_channel(int c, double sum) const {
    mean[c] = A((shift != nullptr ? double(shift[c]) : 0) + sum / count);
  }
  __device__ void write(int d, int i, int j, double product, double sum_i, double sum_j) const {
    double entry = product / count - sum_i / count * (sum_j / count);
    if (i == j && entry < 0) entry = 0;
    A* matrix = covariance[i / d];
    matrix[i % d * covariance.row_stride + j % d] = A(entry);
    matrix[j % d * covariance.row_stride + i % d] = A(entry);
  }
};

/// Sums and products of two activations.
template <typename A>
struct CrossResult {
  static constexpr bool kSymmetric = false;
  A* sum;
  Matrices<A> cross;

  __device__ void write_channel(int c, double total) const { sum[c] = A(total); }
  __device__ void write(int d, int i, int j, double product, double, double) const {
    cross[i / d][i % d * cross.row_stride + j % d] = A(product);
  }
};

/// One entry (i, j) of channels x group_size for each thread of a warp, a share of the sets for each warp.
template <typename Result>
__global__ void __launch_bounds__(kFinishEntries* kFinishShares)
    add_sets(const __grid_constant__ Result result, const double* sets, std::int64_t set_size,
             int set_count, int channels, int d) {
  __shared__ double room[3][kFinishShares][kFinishEntries];
  const std::int64_t entry = std::int64_t(blockIdx.x) * kFinishEntries + threadIdx.x;
  const int i = int(entry / d), j = i / d * d + int(entry % d);
  const bool wanted = i < channels && (!Result::kSymmetric || j <= i);
  await_previous();
  let_next_start();

  double product = 0, sum_i = 0, sum_j = 0;
  if (wanted) {
    const double* sums = sets + std::int64_t(channels) * d;
    // All loads before the first use, or each would wait for the one before.
    constexpr int kAtOnce = 9;
    const int stride = int(blockDim.y);
    for (int first = int(threadIdx.y); first < set_count; first += kAtOnce * stride) {
      double parts[3][kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int s = first + k * stride;
        const bool there = s < set_count;
        parts[0][k] = there ? sets[s * set_size + entry] : 0;
        parts[1][k] = there ? sums[s * set_size + i] : 0;
        parts[2][k] = there && Result::kSymmetric ? sums[s * set_size + j] : 0;
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        product += parts[0][k];
        sum_i += parts[1][k];
        sum_j += parts[2][k];
      }
    }
  }
  room[0][threadIdx.y][threadIdx.x] = product;
  room[1][threadIdx.y][threadIdx.x] = sum_i;
  room[2][threadIdx.y][threadIdx.x] = sum_j;
  __syncthreads();
  if (threadIdx.y > 0 || !wanted) return;
  for (int share = 1; share < int(blockDim.y); ++share) {
    product += room[0][share][threadIdx.x];
    sum_i += room[1][share][threadIdx.x];
    sum_j += room[2][share][threadIdx.x];
  }
  result.write(d, i, j, product, sum_i, sum_j);
  if (j == i / d * d) result.write_channel(i, sum_i);
}

/// One entry (i, j) of channels x group_size for each thread.
template <typename A>
__global__ void finish_partial(const double* sums, const double* shift, A* mean,
                               Matrices<A> covariance) {
  const int d = int(covariance.n), channels = int(covariance.batch) * d;
  const std::int64_t entry = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int i = int(entry / d), j = i / d * d + int(entry % d);
  if (i >= channels || j > i) return;
  const MomentsResult<A, double> result{mean, covariance, shift, sums[0]};
  const double *const sum = sums + 1, *const second = sum + channels;
  result.write(d, i, j, second[entry], sum[i], sum[j]);
  if (j == i / d * d) result.write_channel(i, sum[i]);
}

}  // namespace keel::cuda
