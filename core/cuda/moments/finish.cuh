#pragma once

// Adds up the chunks' sets of sums in float64, in a fixed order, and computes the results.

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#include "cuda/launch/early_start.cuh"
#include "cuda/moments/overflow.cuh"
#include "keel/matrices.h"
#include "keel/moments.h"

namespace keel::cuda {

inline constexpr int kFinishEntries = 32;  // per block: a warp reads adjacent entries
inline constexpr int kFinishShares = 16;   // at most: the sets are distributed over as many warps
// Blocks per multiprocessor. With three, add_sets spilled the arguments of its call.
inline constexpr int kFinishBlocks = 2;

/// Partial moments, moved from the shift of the computation to the requested one.
template <typename A>
struct PartialResult {
  static constexpr bool kSymmetric = true;
  double* sums;
  const double* wanted;  ///< the requested shift; null: zero
  const A* shift;        ///< null if there are no samples
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
  double count;  ///< NaN if there are no samples

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

/// Each share's sums of a block's entries: products, sums of i, sums of j.
using FinishRoom = double[3][kFinishShares][kFinishEntries];

/// The entry (i, j) of channels x group_size at a position of the block.
struct FinishEntry {
  int i, j;
  bool wanted;

  template <typename Result>
  static __device__ FinishEntry of(const Result&, int place, int channels, int d) {
    const std::int64_t entry = std::int64_t(blockIdx.x) * kFinishEntries + place;
    const int i = int(entry / d), j = i / d * d + int(entry % d);
    return {i, j, i < channels && (!Result::kSymmetric || j <= i)};
  }
};

/// Adds the sums of all shares of this thread's entry and writes the entry. Returns whether all its
/// sums are finite.
template <typename Result>
__device__ bool write_entry(const Result& result, const FinishRoom& room, const FinishEntry& at,
                            EntrySums sums, int d) {
  for (int share = 1; share < int(blockDim.y); ++share) {
    sums.product += room[0][share][threadIdx.x];
    sums.left += room[1][share][threadIdx.x];
    sums.right += room[2][share][threadIdx.x];
  }
  result.write(d, at.i, at.j, sums.product, sums.left, sums.right);
  if (at.j == at.i / d * d) result.write_channel(at.i, sums.left);
  return sums.finite();
}

/// If some sums of the block are not finite, recomputes these and writes all entries again. This is
/// a separate call that gets everything anew, so that the common path keeps its registers.
template <typename Result, typename Overflow>
__device__ __noinline__ void rewrite_entries(const Result& result, const Overflow& overflow,
                                             FinishRoom& room, EntrySums* warps, int channels,
                                             int d) {
  for (int e = 0; e < kFinishEntries; ++e) {
    EntrySums old{};  // zeros if the entry is not wanted
    for (int share = 0; share < int(blockDim.y); ++share) {
      old.product += room[0][share][e];
      old.left += room[1][share][e];
      old.right += room[2][share][e];
    }
    if (old.finite()) continue;
    const FinishEntry at = FinishEntry::of(result, e, channels, d);
    const EntrySums sums = block_sum(overflow.part(at.i, at.j, isfinite(old.left)), warps);
    if (threadIdx.x != 0 || threadIdx.y != 0) continue;
    const double was[3] = {old.product, old.left, old.right};
    const double is[3] = {sums.product, sums.left, sums.right};
    for (int k = 0; k < 3; ++k)  // finite sums keep their value
      for (int share = 0; share < int(blockDim.y) && !isfinite(was[k]); ++share)
        room[k][share][e] = share == 0 ? is[k] : 0;
  }
  __syncthreads();
  const int x = int(threadIdx.x);
  const FinishEntry at = FinishEntry::of(result, x, channels, d);
  if (threadIdx.y == 0 && at.wanted)
    write_entry(result, room, at, {room[0][0][x], room[1][0][x], room[2][0][x]}, d);
}

/// Each thread of a warp has one entry, each warp a share of the sets.
template <typename Result, typename Overflow>
__global__ void __launch_bounds__(kFinishEntries* kFinishShares, kFinishBlocks)
    add_sets(const __grid_constant__ Result result, const __grid_constant__ Overflow overflow,
             const double* sets, std::int64_t set_size, int set_count, int channels, int d) {
  __shared__ FinishRoom room;
  const FinishEntry at = FinishEntry::of(result, int(threadIdx.x), channels, d);
  await_previous();
  let_next_start();

  EntrySums sums{};
  if (at.wanted) {
    const std::int64_t entry = std::int64_t(blockIdx.x) * kFinishEntries + threadIdx.x;
    const double* of_channels = sets + std::int64_t(channels) * d;
    // Issue all loads before the first use, so that their latencies overlap.
    constexpr int kAtOnce = 9;
    const int stride = int(blockDim.y);
    for (int first = int(threadIdx.y); first < set_count; first += kAtOnce * stride) {
      double parts[3][kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int s = first + k * stride;
        const bool there = s < set_count;
        parts[0][k] = there ? sets[s * set_size + entry] : 0;
        parts[1][k] = there ? of_channels[s * set_size + at.i] : 0;
        parts[2][k] = there && Result::kSymmetric ? of_channels[s * set_size + at.j] : 0;
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        sums.product += parts[0][k];
        sums.left += parts[1][k];
        sums.right += parts[2][k];
      }
    }
  }
  room[0][threadIdx.y][threadIdx.x] = sums.product;
  room[1][threadIdx.y][threadIdx.x] = sums.left;
  room[2][threadIdx.y][threadIdx.x] = sums.right;
  __syncthreads();
  bool finite = true;
  if (threadIdx.y == 0 && at.wanted) finite = write_entry(result, room, at, sums, d);
  // Check last, when the entries are being written. Checking first delayed all of them.
  if constexpr (Overflow::kOverflows) {
    __shared__ EntrySums warps[kFinishShares];
    if (__syncthreads_or(!finite)) rewrite_entries(result, overflow, room, warps, channels, d);
  }
}

/// Each thread has one entry (i, j) of channels x group_size.
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
