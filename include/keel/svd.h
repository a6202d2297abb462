#pragma once

// Stage: matrix of any shape -> singular values, singular vectors. The core has no gradient of it: with LibTorch that is
// libtorch/svd_formula.h, derived in docs/rectangular.md.

#include <cstdint>

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

enum class SvdStatus : std::uint8_t {
  converged = 0,
  not_finite = 1,  ///< the matrix held NaN or infinity: its values and vectors are NaN
  by_fallback =
      2,  ///< too steep for this type's range, or too slow: solved in a wider one; not on CUDA
  not_converged = 3,  ///< on CUDA: the bound on sweeps was hit; the results are the last sweep's
};

/// Batched singular value decomposition A = U diag(values) V^T of m x n matrices, k = min(m, n). The contract, for
/// every backend:
///
/// - `values` holds batch x k numbers, none negative, in descending order. `left` is U (m x k) and `right` V^T
///   (k x n): column i of U and row i of V^T belong to values[i].
/// - Columns of U and rows of V^T are orthonormal, even where values are zero. In each column of U the entry of largest
///   magnitude (the first such one) is positive.
/// - Not by A^T A alone: errors of values are relative to the largest, and small values have digits of their own where the
///   matrix is steep by its rows or columns alone, D1 C D2 with a well-conditioned C.
/// - `status`, if not null, receives one entry per matrix.
/// - A matrix with NaN or infinity gives NaN, and no other matrix is affected. Every finite matrix is solved.
/// - Scale-free: matrices are scaled by a power of two to unit size and scaled back.
/// - A matrix's result does not depend on its batch-mates, its place in the batch or the executor, to the last bit.
///   Another batch size may select another kernel: then results agree to rounding.
/// - m = 0, n = 0 and batch = 0 are valid. The results must not overlap `matrices`.
namespace reference {
/// One-sided Jacobi in the widest type there is: slow, plain, and what the others are tested against.
void svd(Rectangles<const double> matrices, double* values, Rectangles<double> left,
         Rectangles<double> right, SvdStatus* status = nullptr);
}  // namespace reference

namespace cpu {
/// From the eigenvectors of A^T A, after which the columns of A times these are made orthogonal, judged by their own sizes; a matrix
/// that is steep, nearly of lower rank or smaller than 12, and what that leaves: Householder QR and one-sided Jacobi on its triangle,
/// one matrix per SIMD lane for batches. T is float or double.
template <typename T>
void svd(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
         SvdStatus* status = nullptr, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// The same methods, to min(m, n) = 512; throws for more. Up to 4 x 4 Jacobi's, a thread a matrix. From 12 on the eigenvectors of
/// A^T A by cuda::eigh, with a launch before and one after them (min(m, n) > 128, float64 64, or what does not fit into shared memory: several,
/// by the whole card), and a last one for what these leave: QR and Jacobi, a warp or a block a matrix, in shared memory (on an H100 to
/// min(m, n) = 160, float64 112) or else a cluster of blocks in global memory.
/// Nothing is left to the reference: values too far below the largest for their squares (4e-16 of it in float,
/// 1e-146 in double) may come out as zero, and rows are not sorted by size where there are more than 1024, so steep
/// rows are not promised their digits there.
template <typename T>
void svd(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
         SvdStatus* status = nullptr, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
