#pragma once

// Matrices too large for one block's shared memory, up to N (256, float64: 128), go through four
// kernels: reduce (matrix -> tridiagonal), halves (decomposes its two halves, one block each), join
// (the values of the last merge) and finish (the vectors, one block for every 64). MiddleParts is
// what they pass on.

#include "cuda/eigh/block/divide.cuh"
#include "cuda/threads.cuh"
#include "keel/eigh.h"

namespace keel::cuda {

/// In device memory, one for each matrix in flight.
template <typename T, int N>
struct MiddleParts {
  static constexpr int kHalf = N / 2;
  alignas(16) T reflectors[N * N];   ///< row k: reflector k, from square k / 32 on
  alignas(16) T vectors[N * kHalf];  ///< eigenvectors of the halves, column by column
  alignas(16) MergeStorage<T, N> merge;
  T diagonal[N], coupling[N], reflector_scale[N];
  int order[N];    ///< the row of the matrix that is processed as row i
  int root_at[N];  ///< the root of the last merge that is the i-th largest value
  int exponent, finite, alive, rotations;
};

}  // namespace keel::cuda
