#pragma once

// Matrices between what one block's shared memory holds and N (256, float64: 128) go through four kernels:
// reduce (matrix -> tridiagonal), halves (its two halves decomposed, a block each), join (the values of the
// last merge) and finish (vectors, a block for every 64 of them). This is what one leaves for the next.

#include "cuda/eigh/divide.cuh"
#include "cuda/eigh/warp.cuh"
#include "keel/eigh.h"

namespace keel::cuda {

/// In device memory, one for each matrix under way.
template <typename T, int N>
struct MiddleParts {
  static constexpr int kHalf = N / 2;
  alignas(16) T reflectors[N * N];   ///< row k: reflection k's vector, from square k / 32 on
  alignas(16) T vectors[N * kHalf];  ///< the halves' eigenvectors, column by column
  alignas(16) MergeStorage<T, N> merge;
  T diagonal[N], coupling[N], reflector_scale[N];
  int order[N];    ///< the matrix's row that is worked as row i
  int root_at[N];  ///< the last merge's root at that place of the values
  int exponent, finite, alive, turns;
};

}  // namespace keel::cuda
