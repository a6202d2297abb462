#pragma once

// Restores orthonormality. cuSOLVER's batched solver in float64 returned vectors of the all-ones
// matrix, n = 256, with |V^T V - I| = 1e-6. Newton's iteration for the polar factor,
//     v_i - sum_j (v_i . v_j - [i = j]) v_j / 2,
// squares this error. The overlap of vectors of different eigenvalues is bounded by their
// residuals, so the residuals do not grow.

#include <cmath>
#include <limits>

#include "cuda/matrix/large.cuh"

namespace keel::cuda {

inline constexpr int kOrthogonalityRounds = 3;

/// The matrices that the round before has changed, or all.
struct MarkedMatrices {
  const int* marks;  ///< null: all
  __device__ bool operator()(std::int64_t b) const { return marks == nullptr || marks[b] != 0; }
};

/// From rows rows^T to the defect: subtracts I, and marks a matrix if more than rounding remains.
template <typename T>
struct FindDefect {
  MarkedMatrices before;
  T tolerance;
  Matrices<T> product;
  int* found;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (!before(b)) return;
    T& x = product[b][i * product.row_stride + j];
    if (i == j) x -= 1;
    if (!(fabs(x) <= tolerance)) found[b] = 1;
  }
};

/// rows -= defect rows / 2
template <typename T>
struct MendRows {
  MarkedMatrices marked;
  Matrices<T> product, rows;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (marked(b)) rows[b][i * rows.row_stride + j] -= product[b][i * product.row_stride + j] / 2;
  }
};

/// Makes the rows of the matrices orthonormal to rounding. Matrices that already are stay unchanged.
template <typename T>
void restore_orthogonality(const char* operation, Matrices<T> rows, const Stream& stream) {
  using namespace large;
  const std::int64_t batch = rows.batch, n = rows.n;
  const Scratch<T> defects(operation, stream, batch * n * n),
      products(operation, stream, batch * n * n);
  const Scratch<int> found(operation, stream, kOrthogonalityRounds * batch);
  check(operation,
        cudaMemsetAsync(found, 0, sizeof(int) * std::size_t(kOrthogonalityRounds * batch),
                        native(stream)));
  const auto defect = contiguous<T>(defects, batch, n), product = contiguous<T>(products, batch, n);
  const Plain<T> all_rows{rows};
  const T tolerance = 2 * std::sqrt(T(n)) * std::numeric_limits<T>::epsilon();
  MarkedMatrices before{nullptr};
  for (int round = 0; round < kOrthogonalityRounds; ++round) {
    int* const marks = found + round * batch;
    const MarkedMatrices marked{marks};
    multiply<true>(operation, stream, all_rows, Transposed<T>{rows}, defect, before);
    for_each_entry(operation, stream, batch, n, FindDefect<T>{before, tolerance, defect, marks});
    multiply(operation, stream, Plain<T>{defect}, all_rows, product, marked);
    for_each_entry(operation, stream, batch, n, MendRows<T>{marked, product, rows});
    before = marked;
  }
}

}  // namespace keel::cuda
