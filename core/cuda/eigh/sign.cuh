#pragma once

// The sign of an eigenvector: the entry of largest magnitude (the first one, if several tie) is
// positive.

#include <climits>

namespace keel::cuda {

/// Finds that entry among those offered to this thread and to others that hold parts of the same
/// vector.
template <typename T>
struct LargestEntry {
  T magnitude = -1, entry = 1;
  int row = INT_MAX;

  __device__ void offer(T x, int x_row) { take({fabs(x), x, x_row}); }
  /// Combines the results of `threads` adjacent threads of a warp, for all of them.
  __device__ void share(int threads) {
    for (int distance = 1; distance < threads; distance *= 2)
      take({__shfl_xor_sync(0xffffffffu, magnitude, distance),
            __shfl_xor_sync(0xffffffffu, entry, distance),
            __shfl_xor_sync(0xffffffffu, row, distance)});
  }
  /// Entry x of the vector with the right sign; never -0.
  __device__ T with_sign(T x) const { return (entry < 0 ? -x : x) + T(0); }

 private:
  __device__ void take(const LargestEntry& other) {
    if (other.magnitude > magnitude || (other.magnitude == magnitude && other.row < row))
      *this = other;
  }
};

}  // namespace keel::cuda
