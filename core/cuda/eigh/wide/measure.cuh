#pragma once

// The largest magnitude of each matrix's lower triangle, or infinity if an entry is not finite, and
// which rows have a neighbour: a nonzero off-diagonal entry.

#include "cuda/eigh/wide/parts.cuh"
#include "cuda/threads.cuh"
#include "formulas/scale.h"
#include "keel/matrices.h"

namespace keel::cuda {

inline constexpr int kWideMeasureThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kWideMeasureThreads)
    wide_measure_kernel(Matrices<const T> matrices, std::int64_t first, int slices, int stride,
                        unsigned char* memory, std::int64_t bytes, const bool* wanted) {
  constexpr int kWarps = kWideMeasureThreads / 32;
  const int index = int(blockIdx.x) / slices, slice = int(blockIdx.x) % slices;
  if (wanted != nullptr && !wanted[index]) return;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, n = int(matrices.n);
  const WideParts<T> parts(memory + index * bytes, stride);
  const T* const source = matrices[first + index];
  T size = 0;
  unsigned long long neighbours = 0;  // bit j: some row has an entry in column lane + 32 j
  for (int r = slice * kWarps + warp; r < n; r += slices * kWarps) {
    bool neighbour = false;
#pragma unroll 4
    for (int j = 0; j <= r / 32; ++j) {
      const int c = lane + 32 * j;
      const T x = c <= r ? source[r * matrices.row_stride + c] : T(0);
      size = fmax(size, UnitScale<T>::magnitude(x));
      if (c < r && x != 0) {
        neighbour = true;
        neighbours |= 1ull << j;
      }
    }
    if (__any_sync(0xffffffffu, neighbour) && lane == 0) parts.has_neighbour[r] = 1;
  }
  for (int j = 0; lane + 32 * j < n; ++j)
    if (neighbours >> j & 1) parts.has_neighbour[lane + 32 * j] = 1;
  size = Lanes<32>::largest(size);
  if (lane == 0) atomicMax(parts.largest, as_bits(size));
}

}  // namespace keel::cuda
