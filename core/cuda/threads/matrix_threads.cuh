#pragma once

namespace keel::cuda {

/// The threads that share one matrix: a whole block, a warp or a part of one.
template <int COUNT>
struct MatrixThreads {
  static constexpr bool kBlock = COUNT > 32;
  int thread;  ///< 0 .. COUNT - 1

  __device__ void sync() const {
    if constexpr (kBlock)
      __syncthreads();
    else
      __syncwarp();
  }
  /// Whether the flag is set in any thread of this block, or of this warp (which may hold several
  /// matrices).
  __device__ static bool anyone(bool flag) {
    if constexpr (kBlock)
      return __syncthreads_or(flag);
    else
      return __any_sync(0xffffffffu, flag);
  }
};

}  // namespace keel::cuda
