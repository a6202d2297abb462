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

  LargestEntry() = default;
  /// That among entries x[k] of rows row[k] (those with a negative one do not count), and those of
  /// `threads` adjacent threads of a warp. In two passes, which are shorter than a chain of offers.
  template <int COUNT>
  __device__ LargestEntry(const T (&x)[COUNT], const int (&x_row)[COUNT], int threads) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) magnitude = fmax(magnitude, x_row[k] >= 0 ? fabs(x[k]) : T(-1));
    for (int distance = 1; distance < threads; distance *= 2)
      magnitude = fmax(magnitude, __shfl_xor_sync(0xffffffffu, magnitude, distance));
    int first = INT_MAX;  // row and sign
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      const int key = 2 * x_row[k] + int(x[k] < 0);
      first = min(first, x_row[k] >= 0 && fabs(x[k]) == magnitude ? key : INT_MAX);
    }
    for (int distance = 1; distance < threads; distance *= 2)
      first = min(first, __shfl_xor_sync(0xffffffffu, first, distance));
    row = first / 2;
    entry = first % 2 != 0 ? -magnitude : magnitude;
  }

  __device__ void offer(T x, int x_row) { take(LargestEntry(fabs(x), x, x_row)); }
  /// Combines the results of `threads` adjacent threads of a warp, for all of them.
  __device__ void share(int threads) {
    for (int distance = 1; distance < threads; distance *= 2)
      take(LargestEntry(__shfl_xor_sync(0xffffffffu, magnitude, distance),
                        __shfl_xor_sync(0xffffffffu, entry, distance),
                        __shfl_xor_sync(0xffffffffu, row, distance)));
  }
  /// Entry x of the vector with the right sign; never -0.
  __device__ T with_sign(T x) const { return (entry < 0 ? -x : x) + T(0); }

 private:
  __device__ LargestEntry(T size, T x, int x_row) : magnitude(size), entry(x), row(x_row) {}
  __device__ void take(const LargestEntry& other) {
    if (other.magnitude > magnitude || (other.magnitude == magnitude && other.row < row))
      *this = other;
  }
};

}  // namespace keel::cuda
