#pragma once

// Stage: symmetric or Hermitian matrix -> eigenvalues, eigenvectors. The gradient of real matrices
// is gradient_rule.h.

#include <complex>
#include <cstdint>

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// Whether the smallest or the largest eigenvalue comes first. torch, NumPy and LAPACK use
/// ascending order. Rank policies (spectral.h) need descending order.
enum class EighOrder : std::uint8_t { ascending, descending };

enum class EighStatus : std::uint8_t {
  converged = 0,
  not_finite = 1,     ///< the matrix held NaN or infinity: its values and vectors are NaN
  by_fallback = 2,    ///< the fast solver hit its iteration limit, and the Jacobi solver took over
  not_converged = 3,  ///< cuSOLVER did not report convergence: values and vectors are NaN
};

/// Batched eigendecomposition M = V diag(values) V^H of matrices of float or double, which are
/// symmetric, or of std::complex<float> or std::complex<double>, which are Hermitian. The contract,
/// for every backend:
///
/// - Only the lower triangle and the diagonal are read. The imaginary parts of the diagonal are taken
///   to be zero.
/// - `values` holds batch x n numbers in the requested order. Column i of `vectors` belongs to
///   values[i]. One order is the exact reverse of the other, to the last bit.
/// - The vectors are orthonormal. In each, the entry of largest magnitude (the first one, if
///   several tie) is positive; if complex, its imaginary part is exactly zero. (Complex magnitudes
///   that differ by rounding alone may count as different.)
/// - `status`, if not null, receives one entry per matrix.
/// - A matrix with NaN or infinity in its lower triangle gives NaN. Other matrices are not
///   affected.
/// - Every finite matrix is solved: iterations are bounded, and a Jacobi solver takes over at the
///   limit. (This does not hold for cuSOLVER, see cuda::eigh.)
/// - If all off-diagonal entries of a row are exactly zero (a dead channel), its diagonal entry is
///   an eigenvalue to the last bit, and the eigenvector is a unit vector. (cuSOLVER: to rounding.
///   On CUDA an entry below 2^-126 of the largest, in float64 2^-1022, may become 0.)
/// - Errors of the values are relative to the largest magnitude in the matrix, so small eigenvalues
///   may lose all digits. The exception is a matrix that some permutation makes block diagonal,
///   with exact zeros outside the blocks. Then errors are relative to the block's own largest
///   magnitude, as if it were solved alone, and vectors are zero outside their block. (On CUDA this
///   holds where a single launch solves the batch. Beyond that it holds only for blocks of one row,
///   the dead channels above.)
/// - Scale-free: each matrix is scaled to unit size by a power of two, and the values are scaled
///   back.
/// - The result of a matrix does not depend on the other matrices, its position in the batch or the
///   executor, to the last bit. Another batch size may select another kernel. Then results agree to
///   rounding.
/// - n = 0 and batch = 0 are valid. `vectors` must not overlap `matrices`.
/// - Temporary memory is O(threads * n^2).
namespace reference {
/// Cyclic two-sided Jacobi in float64. Slow and plain: the other backends are tested against it.
void eigh(Matrices<const double> matrices, double* values, Matrices<double> vectors,
          EighOrder order, EighStatus* status = nullptr);
void eigh(Matrices<const std::complex<double>> matrices, double* values,
          Matrices<std::complex<double>> vectors, EighOrder order, EighStatus* status = nullptr);
}  // namespace reference

namespace cpu {
/// Householder tridiagonalisation and implicit QL; batches are solved with one matrix per SIMD
/// lane. From n = 96 on: blocked reduction, divide and conquer and matrix products. The executor's
/// threads share each matrix if a batch has fewer than eight and n >= 384, or only one and
/// n >= 192. Otherwise one thread solves a matrix, or a pack of them. Complex matrices that are not
/// solved one per lane take the second way for every n.
template <typename T>
void eigh(Matrices<const T> matrices, RealOf<T>* values, Matrices<T> vectors, EighOrder order,
          EighStatus* status = nullptr, const Executor& executor = serial());

/// The values alone, without the work for vectors. Those of real matrices below n = 24 are eigh's to
/// the last bit. Others may be solved by QL without square roots, and the values are, like eigh's,
/// within 4 n epsilon of the largest magnitude of the exact ones.
template <typename T>
void eigvalsh(Matrices<const T> matrices, RealOf<T>* values, EighOrder order,
              EighStatus* status = nullptr, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// Tridiagonalisation and divide and conquer. How the work is split depends on n (in parentheses:
/// the limits in float64):
///
/// - n <= 4: Jacobi rotations only. From 8192 matrices on, one thread per matrix.
/// - n <= 128 (64): one launch for the whole batch.
/// - n <= 256 (128): four launches for every 528 matrices.
/// - n <= 2048: several multiprocessors per matrix. Temporary memory is four times that of the
///   matrices in flight. These are as many as fit into 512 MB, but at least one.
/// - Beyond that: cuSOLVER. A matrix on which it fails gets NaN and the status not_converged; the
///   others are not affected. For n > 256, what cuSOLVER does may not be capturable in a graph.
///
/// GPUs with less shared memory than an H100 leave more to cuSOLVER: an A100 n > 64 (n > 1664), an
/// RTX 30 or 40 n > 64 (n > 32).
///
/// Complex matrices: n <= 128 (64) in one launch for the whole batch, and cuSOLVER beyond that; on
/// GPUs with less shared memory n <= 64 (A100: 64, RTX 30 or 40: 32). Complex numbers must be aligned
/// to their size.
///
/// For every stage in namespace cuda: all pointers are memory of the current device. The work is
/// queued on the stream and the call does not wait for it, so it can be captured in a graph. In a
/// build without CUDA the call throws keel::Error.
template <typename T>
void eigh(Matrices<const T> matrices, RealOf<T>* values, Matrices<T> vectors, EighOrder order,
          EighStatus* status = nullptr, const Stream& stream = {});

/// The values alone. From n = 2048 on (complex: where eigh is cuSOLVER's) by cuSOLVER, without the work for vectors;
/// real ones not if the call is captured in a graph. Otherwise they are those of eigh to the last
/// bit, in the same time.
template <typename T>
void eigvalsh(Matrices<const T> matrices, RealOf<T>* values, EighOrder order,
              EighStatus* status = nullptr, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
