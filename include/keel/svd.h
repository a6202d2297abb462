#pragma once

// Stage: matrix of any shape -> singular values, singular vectors. The core has no gradient for it.
// The LibTorch adapter has one: libtorch/ops/svd.cpp, derived in docs/rectangular.md.

#include <cstdint>

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

enum class SvdStatus : std::uint8_t {
  converged = 0,
  not_finite = 1,  ///< the matrix held NaN or infinity: its values and vectors are NaN
  /// Solved in a wider type, because the matrix is too steep for this type's range or did not
  /// converge. Not on CUDA.
  by_fallback = 2,
  not_converged = 3,  ///< on CUDA: the bound on sweeps was hit; the results are the last sweep's
};

/// Batched singular value decomposition A = U diag(values) V^T of m x n matrices, k = min(m, n).
/// The contract, for every backend:
///
/// - `values` holds batch x k numbers, not negative, in descending order. `left` is U (m x k) and
///   `right` is V^T (k x n). Column i of U and row i of V^T belong to values[i].
/// - The columns of U and the rows of V^T are orthonormal, even if values are zero. In each column
///   of U the entry of largest magnitude (the first one, if several tie) is positive.
/// - Errors of the values are relative to the largest. If A = D1 C D2 with diagonal D1 and D2 and a
///   well-conditioned C, even the small values have correct digits where a backend says so.
/// - `status`, if not null, receives one entry per matrix.
/// - A matrix with NaN or infinity gives NaN. Other matrices are not affected. Every finite matrix
///   is solved.
/// - Scale-free: each matrix is scaled to unit size by a power of two, and the values are scaled
///   back.
/// - The result of a matrix does not depend on the other matrices, its position in the batch or the
///   executor, to the last bit. Another batch size may select another kernel. Then results agree to
///   rounding.
/// - m = 0, n = 0 and batch = 0 are valid. The results must not overlap `matrices`.
namespace reference {
/// One-sided Jacobi in long double. Slow and plain: the other backends are tested against it.
void svd(Rectangles<const double> matrices, double* values, Rectangles<double> left,
         Rectangles<double> right, SvdStatus* status = nullptr);
}  // namespace reference

namespace cpu {
/// min(m, n) >= 64: reduction to bidiagonal form and divide and conquer, in the same time for every
/// spectrum. Errors are relative to the largest value. If one side is at least twice as long, the way
/// of smaller matrices comes first where A^T A tells all columns of U apart.
///
/// min(m, n) from 12 to 63: computes the eigenvectors J of A^T A and then makes the columns of A J
/// orthogonal, each relative to its own size. Columns too short for A^T A are rotated again, by the
/// eigenvectors of their own Gram matrix, or become zero where more than half of the columns are only
/// noise. So are columns of almost equal lengths, in clusters of values. If some are still not
/// orthogonal, the way of steep matrices takes over, where pairs of columns are rotated one by one if
/// nothing else helps.
///
/// A steep matrix (its largest entry is more than 32 times that of some column, or of more than
/// m - n rows) with min(m, n) < 64 goes through Householder QR with pivots first, and then the same
/// way with R^T. Its short columns are never mixed with rounding errors of long ones, so the small
/// values of D1 C D2 above keep their digits however steep D1 or D2 is. If neither is steep, errors
/// are relative to the largest value.
///
/// A matrix with at least 16 times as many rows as columns (or columns as rows) is cut into slices that fit
/// into the cache, each of which QR makes triangular, up to min(m, n) = 16 at once, to 64 instead of
/// rotating pairs of long columns. Not if fewer than n rows have entries of 1/32 of the largest: QR
/// would lose digits of the others.
///
/// min(m, n) < 12: QR and one-sided Jacobi. Batches of small steep matrices: the same, with one
/// matrix per SIMD lane, without pivots. Diagonal matrices are only sorted. A single matrix with
/// min(m, n) >= 64 is spread over the executor. T is float or double.
template <typename T>
void svd(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
         SvdStatus* status = nullptr, const Executor& executor = serial());

/// The values alone, without the work for vectors. Their errors are relative to the largest value, whatever the matrix
/// is: the small values of D1 C D2 have no digits of their own here. In float: the roots of the eigenvalues of A^T A,
/// computed in double. In double: QR if the matrix is long, Householder reduction to bidiagonal form, and QL without
/// square roots, whose small values are bisected. Diagonal matrices are sorted. Batches with min(m, n) <= 16, in
/// double: by svd. All others do without a fallback.
template <typename T>
void svdvals(Rectangles<const T> matrices, T* values, SvdStatus* status = nullptr,
             const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// Up to min(m, n) = 512 the methods by which the CPU solves matrices below 64. Short columns and clusters are rotated
/// again up to twice. Steep matrices, and those for which that does not suffice, go through QR and Jacobi, and small
/// values of D1 C D2 keep their digits; but not if a matrix is steep only because one value dominates: then it has no
/// well-conditioned C.
///
/// - Up to 4 x 4: Jacobi, one thread per matrix.
/// - From min(m, n) = 12 on: the eigenvectors of A^T A by cuda::eigh, with one launch before it and
///   one after it. Matrices with min(m, n) > 128 (float64: 64), or that do not fit into shared
///   memory, take several launches of the whole GPU instead.
/// - The last launch solves the rest: QR and Jacobi with one warp or one block per matrix in shared
///   memory (on an H100 up to min(m, n) = 160, float64: 112), or else with a cluster of blocks in
///   global memory.
/// - Where min(m, n) <= 64 and a block cannot hold the matrix: slices of its rows (or columns, if it
///   is wide), each as above, and then the shorter matrix that they leave.
/// - Beyond min(m, n) = 512: the same method up to 2048 (on an H100). It leaves the rest to cuSOLVER, one
///   matrix after the other, so it waits for the device and cannot be captured in a graph. Errors of small
///   values are relative to the largest.
///
/// Nothing falls back to the reference. Values below 4e-16 of the largest in float, 1e-146 in
/// double, may come out as zero, because their squares are too small. The rows of matrices with more
/// than 1024 rows are not sorted by size, so small values that come from steep rows may have no
/// correct digits there.
template <typename T>
void svd(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
         SvdStatus* status = nullptr, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
