#pragma once

// Recomputes sums over samples that overflowed in float32 although the mean or covariance may fit.
// The block that adds up the chunks' sets sums them again in float64, directly from the
// activations. The kernels that compute the sets need not know. If all sums are finite, the only
// cost is the check.

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#include "cuda/activations/elements.cuh"
#include "cuda/activations/slabs.h"

namespace keel::cuda {

/// The sums of an entry: of (left - center) (right - center), of left - center, and of right -
/// center.
struct EntrySums {
  double product, left, right;

  __device__ bool finite() const { return isfinite(product) && isfinite(left) && isfinite(right); }
};

/// The activations to sum again. Null centers are zeros.
template <typename T>
struct OverflowedSums {
  static constexpr bool kOverflows = true;
  const T *left, *right;
  SampleLayout layout;
  const Accumulator<T>*left_center, *right_center;

  /// This thread's part of the sums of channels i and j. Finite float32 numbers do not overflow
  /// here. `clean`: channel i has no NaN or infinity. Once one is found in i (or in j, if i is
  /// clean) the rest is skipped.
  __device__ EntrySums part(int i, int j, bool clean) const {
    constexpr int kAtOnce = 4;
    const double center_i = left_center != nullptr ? double(left_center[i]) : 0;
    const double center_j = right_center != nullptr ? double(right_center[j]) : 0;
    const std::int64_t threads = blockDim.x * blockDim.y;
    EntrySums sums{};
    for (std::int64_t first = threadIdx.y * blockDim.x + threadIdx.x; first < layout.samples;
         first += kAtOnce * threads) {
      double x[kAtOnce], y[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const std::int64_t sample = first + k * threads;
        const bool there = sample < layout.samples;
        const auto start = layout.start(there ? sample : 0);
        x[k] = there ? double(widened(left[layout.offset(start, 0, i)])) - center_i : 0;
        y[k] = there ? double(widened(right[layout.offset(start, 0, j)])) - center_j : 0;
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        sums.product += x[k] * y[k];
        sums.left += x[k];
        sums.right += y[k];
      }
      if (!isfinite(clean ? sums.product : sums.left)) break;
    }
    return sums;
  }
};

/// For sums that were already computed in float64.
struct NoOverflow {
  static constexpr bool kOverflows = false;
};

/// The sum of all threads' parts, for every thread. Its order depends only on the block size.
/// `room` has one entry per warp. Contains two barriers.
__device__ inline EntrySums block_sum(EntrySums part, EntrySums* room) {
  const int thread = int(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    part.product += __shfl_xor_sync(0xffffffffu, part.product, step);
    part.left += __shfl_xor_sync(0xffffffffu, part.left, step);
    part.right += __shfl_xor_sync(0xffffffffu, part.right, step);
  }
  if (thread % 32 == 0) room[thread / 32] = part;
  __syncthreads();
  EntrySums total{};
  for (int warp = 0; warp < int(blockDim.x * blockDim.y) / 32; ++warp) {
    total.product += room[warp].product;
    total.left += room[warp].left;
    total.right += room[warp].right;
  }
  __syncthreads();
  return total;
}

}  // namespace keel::cuda
