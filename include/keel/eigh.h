#pragma once

// Stage: symmetric matrix -> eigenvalues, eigenvectors. Its gradient is gradient_rule.h.

#include <cstdint>

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// Whether the smallest or the largest eigenvalue comes first. torch, NumPy and LAPACK use ascending order; rank
/// policies (spectral.h) need descending.
enum class EighOrder : std::uint8_t { ascending, descending };

enum class EighStatus : std::uint8_t {
  converged = 0,
  not_finite = 1,     ///< the matrix held NaN or infinity: its values and vectors are NaN
  by_fallback = 2,    ///< the fast solver hit its iteration limit, and the Jacobi solver took over
  not_converged = 3,  ///< cuSOLVER did not report convergence: values and vectors are NaN
};

/// Batched symmetric eigendecomposition M = V diag(values) V^T. The contract, for every backend:
///
/// - Reads the lower triangle (diagonal included) and nothing above it.
/// - `values` holds batch x n numbers in the order asked for; column i of `vectors` belongs to
///   values[i]. One order is the other read backwards, to the last bit.
/// - Vectors are orthonormal. In each, the entry of largest magnitude (the first such one) is
///   positive.
/// - `status`, if not null, receives one entry per matrix.
/// - A matrix with NaN or infinity in its lower triangle gives NaN, and no other matrix is
///   affected.
/// - Every finite matrix is solved: iterations are bounded, and a Jacobi solver takes over at the limit.
///   (Not where cuSOLVER solves, see cuda::eigh.)
/// - If all entries of a row beside the diagonal are exactly zero (a dead channel), the diagonal entry is an
///   eigenvalue to the last bit, and its vector is a unit vector. (Where cuSOLVER solves, to rounding;
///   on CUDA an entry under 2^-126 of the largest, in float64 2^-1022, may become 0.)
/// - Errors of values are relative to the largest magnitude in the matrix, so small eigenvalues may lose all
///   digits. The exception is a matrix that falls into parts with only exact zeros between them, in any order
///   of the rows. Then errors are relative to the part's own largest, as if it were solved alone, and vectors
///   are zero outside their part. (On CUDA this holds where one launch solves; beyond that only for parts of
///   one row, the dead channel above.)
/// - Scale-free: matrices are scaled by a power of two to unit size and scaled back.
/// - A matrix's result does not depend on its batch-mates, its place in the batch or the
///   executor, to the last bit. Another batch size may select another kernel: then results agree
///   to rounding.
/// - n = 0 and batch = 0 are valid. `vectors` must not overlap `matrices`.
/// - Temporary memory is O(threads * n^2).
namespace reference {
/// Cyclic two-sided Jacobi in float64: slow, plain, and what the others are tested against.
void eigh(Matrices<const double> matrices, double* values, Matrices<double> vectors,
          EighOrder order, EighStatus* status = nullptr);
}  // namespace reference

namespace cpu {
/// Householder tridiagonalisation and implicit QL, one matrix per SIMD lane for batches; from n = 96 on by
/// panels, divide and conquer and products of matrices. Of fewer than eight matrices with n >= 384, and of one with
/// n >= 192, each is spread over the executor; otherwise a matrix, or a pack of them, is one thread's.
/// T is float or double.
template <typename T>
void eigh(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
          EighStatus* status = nullptr, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// Tridiagonalisation and divide and conquer: one launch for the whole batch up to n = 128 (float64: 64; n <= 4 by
/// rotations alone, from 8192 matrices on by another kernel, a thread a matrix), four up to twice that (for every
/// 528 matrices), a matrix over several multiprocessors up to n = 2048 (temporary memory: four times the matrices,
/// for as many at a time as 512 MB hold, or one); cuSOLVER beyond, where a matrix that it gives up is NaN, by itself,
/// and not_converged. Cards with less shared memory than an H100 leave more to cuSOLVER: an A100 n > 64 (float64:
/// n > 1664), an RTX 30 or 40 n > 64 (float64: 32). What cuSOLVER does for n > 256 may not be captured. For every
/// stage in namespace cuda: all pointers are the current device's, the work is queued on the stream and
/// nothing is waited for, so it can be captured in a graph. Throws keel::Error in a build without CUDA.
template <typename T>
void eigh(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
          EighStatus* status = nullptr, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
