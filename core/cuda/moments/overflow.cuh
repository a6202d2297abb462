#pragma once

// Sums over samples that overflowed in float32, though the mean or covariance they are for may fit: taken
// again in float64, straight from the activations, by the block that adds the chunks' sets up. The kernels
// that made the sets know nothing of it, and where all sums are finite it costs a look at them.

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#include "cuda/activations/elements.cuh"
#include "cuda/activations/slabs.h"

namespace keel::cuda {

/// An entry's sums of (left - center) (right - center), of left - center, and of right - center.
struct EntrySums {
  double product, left, right;

  __device__ bool finite() const { return isfinite(product) && isfinite(left) && isfinite(right); }
};

/// The activations that the sums are of. Null centers are zeros.
template <typename T>
struct SumsAgain {
  static constexpr bool kOverflows = true;
  const T *left, *right;
  SampleLayout layout;
  const Accumulator<T>*left_center, *right_center;
  const T* left_gate;  ///< null: none

  /// This thread's part of the sums of channels i and j. No finite numbers of float32 overflow here. `clean`: no
  /// NaN or infinity is in channel i. Where one is, or in j if i is clean, the rest is not looked at.
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
        const std::int64_t at = layout.offset(start, 0, i);
        const bool open = left_gate == nullptr || is_open(left_gate[at]);
        x[k] = there ? (open ? double(widened(left[at])) : 0) - center_i : 0;
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

/// For sums that were taken in float64 the first time.
struct NothingAgain {
  static constexpr bool kOverflows = false;
};

/// The sum of all threads' parts, in an order that the block's size alone decides; for every thread. `room` has
/// a place for each warp. Two barriers.
__device__ inline EntrySums added_up(EntrySums part, EntrySums* room) {
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
