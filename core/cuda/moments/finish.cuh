#pragma once

// Adds up the chunks' sets of sums in float64, in a fixed order, and computes the results.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cuda/activations/slabs.h"
#include "cuda/launch/launch.h"
#include "cuda/moments/overflow.cuh"
#include "host_device.h"
#include "keel/matrices.h"
#include "keel/moments.h"

namespace keel::cuda {

inline constexpr int kFinishThreads = 512;  // of a block, at most
inline constexpr int kFinishShares = 16;  // at most: the sets of an entry are distributed over them
inline constexpr int kSetsAtOnce = 9;     // that a thread loads
// Blocks of 512 threads per multiprocessor. With three, add_sets spilled the arguments of its call.
inline constexpr int kFinishBlocks = 2;

/// A block of add_sets: entries by shares. Few shares, so that all blocks run at once: loads of up
/// to kSetsAtOnce sets take hardly longer than one, but a second wave of blocks takes as long as the
/// first.
inline dim3 finish_block(std::int64_t sets) {
  const auto shares =
      unsigned(std::clamp<std::int64_t>(pieces<std::int64_t>(sets, kSetsAtOnce), 1, kFinishShares));
  return {std::max(32u, 256 / shares / 32 * 32), shares};
}

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

/// Each share's sums of a block's entries, share by share: products, sums of i, sums of j.
using FinishRoom = double[3][kFinishThreads];

/// The entries of a group of d channels that are computed: the lower triangle of a symmetric result.
template <typename Result>
constexpr KEEL_HOST_DEVICE std::int64_t entries_of_group(int d) {
  return Result::kSymmetric ? std::int64_t(d) * (d + 1) / 2 : std::int64_t(d) * d;
}

/// The entry (i, j) of channels x group_size at a position of the block.
struct FinishEntry {
  int i, j;
  bool wanted;

  template <typename Result>
  static __device__ FinishEntry of(const Result&, int place, int channels, int d) {
    const std::int64_t entry = std::int64_t(blockIdx.x) * blockDim.x + place;
    const std::int64_t each = entries_of_group<Result>(d);
    // Division takes long in 64 bits.
    const bool is_short = entry <= 0x7fffffff && each <= 0x7fffffff;
    const std::int64_t group = is_short ? unsigned(entry) / unsigned(each) : entry / each;
    const Cell cell = Result::kSymmetric ? folded_triangle(entry - group * each, d)
                                         : across(entry - group * each, d);
    return {int(group * d + cell.row), int(group * d + cell.column), group * d < channels};
  }

  static __device__ Cell across(std::int64_t index, int width) {
    const std::int64_t row =
        index <= 0x7fffffff ? unsigned(index) / unsigned(width) : index / width;
    return {int(row), int(index - row * width)};
  }

  /// A short row of the triangle and a long one are together as long as any other such pair, so the
  /// pairs form a rectangle. (If d is odd, the longest row is alone.)
  static __device__ Cell folded_triangle(std::int64_t index, int d) {
    const Cell cell = across(index, d | 1);
    const int length = cell.row + (d % 2 == 0 ? 1 : 0);  // of the short row
    return cell.column < length ? Cell{length - 1, cell.column}
                                : Cell{d - 1 - cell.row, cell.column - length};
  }
};

/// Adds the sums of all shares of this thread's entry and writes the entry. Returns whether all its
/// sums are finite.
template <typename Result>
__device__ bool write_entry(const Result& result, const FinishRoom& room, const FinishEntry& at,
                            EntrySums sums, int d) {
#pragma unroll 3
  for (unsigned at_share = threadIdx.x + blockDim.x; at_share < blockDim.x * blockDim.y;
       at_share += blockDim.x) {
    sums.product += room[0][at_share];
    sums.left += room[1][at_share];
    sums.right += room[2][at_share];
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
  const int entries = int(blockDim.x), numbers = entries * int(blockDim.y);
  for (int e = 0; e < entries; ++e) {
    EntrySums old{};  // zeros if the entry is not wanted
    for (int at = e; at < numbers; at += entries) {
      old.product += room[0][at];
      old.left += room[1][at];
      old.right += room[2][at];
    }
    if (old.finite()) continue;
    const FinishEntry entry = FinishEntry::of(result, e, channels, d);
    const EntrySums sums = block_sum(overflow.part(entry.i, entry.j, isfinite(old.left)), warps);
    if (threadIdx.x != 0 || threadIdx.y != 0) continue;
    const double was[3] = {old.product, old.left, old.right};
    const double is[3] = {sums.product, sums.left, sums.right};
    for (int k = 0; k < 3; ++k)  // finite sums keep their value
      for (int at = e; at < numbers && !isfinite(was[k]); at += entries)
        room[k][at] = at == e ? is[k] : 0;
  }
  __syncthreads();
  const int x = int(threadIdx.x);
  const FinishEntry at = FinishEntry::of(result, x, channels, d);
  if (threadIdx.y == 0 && at.wanted)
    write_entry(result, room, at, {room[0][x], room[1][x], room[2][x]}, d);
}

/// Adjacent threads have adjacent entries, whole warps a share of the sets (finish_block).
template <typename Result, typename Overflow>
__global__ void __launch_bounds__(kFinishThreads, kFinishBlocks)
    add_sets(const __grid_constant__ Result result, const __grid_constant__ Overflow overflow,
             const double* sets, std::int64_t set_size, int set_count, int channels, int d) {
  __shared__ FinishRoom room;
  const FinishEntry at = FinishEntry::of(result, int(threadIdx.x), channels, d);
  const std::int64_t entry = std::int64_t(at.i) * d + at.j % d;
  const double* of_channels = sets + std::int64_t(channels) * d;
  await_previous();
  let_next_start();

  EntrySums sums{};
  if (at.wanted) {
    const int stride = int(blockDim.y);
    for (int first = int(threadIdx.y); first < set_count; first += kSetsAtOnce * stride) {
      // Issue all loads before the first use, so that their latencies overlap.
      double parts[3][kSetsAtOnce];
#pragma unroll
      for (int k = 0; k < kSetsAtOnce; ++k) {
        const int s = first + k * stride;
        const bool there = s < set_count;
        parts[0][k] = there ? sets[s * set_size + entry] : 0;
        parts[1][k] = there ? of_channels[s * set_size + at.i] : 0;
        parts[2][k] = there && Result::kSymmetric ? of_channels[s * set_size + at.j] : 0;
      }
#pragma unroll
      for (int k = 0; k < kSetsAtOnce; ++k) {
        sums.product += parts[0][k];
        sums.left += parts[1][k];
        sums.right += parts[2][k];
      }
    }
  }
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  room[0][thread] = sums.product;
  room[1][thread] = sums.left;
  room[2][thread] = sums.right;
  __syncthreads();
  bool finite = true;
  if (threadIdx.y == 0 && at.wanted) finite = write_entry(result, room, at, sums, d);
  // Check last, when the entries are being written. Checking first delayed all of them.
  if constexpr (Overflow::kOverflows) {
    __shared__ EntrySums warps[kFinishThreads / 32];
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
