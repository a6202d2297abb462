#pragma once

// Stage: matrix -> nearest orthogonal matrix or rotation. The gradient is here too.

#include <cstdint>

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// What backward needs in addition to the polar factor, so that it need not decompose the matrix
/// again.
template <typename T>
struct PolarFactors {
  T* values = nullptr;       ///< t below, batch x k
  Rectangles<T> right = {};  ///< V^T, k x n

  explicit operator bool() const { return values != nullptr; }
};

enum class PolarKind : std::uint8_t {
  orthogonal,  ///< orthonormal rows or columns, whichever are fewer; of any determinant
  rotation,    ///< of determinant 1; square matrices only
};

/// The polar factor of m x n matrices A = U diag(s) V^T, with k = min(m, n) and s descending: the
/// matrix R = U D V^T nearest to A (Procrustes, Kabsch, Wahba). D = diag(1, ..., 1, d), where d =
/// det(U) det(V) for `rotation` and 1 for `orthogonal`. The contract, for every backend:
///
/// - R is orthonormal to rounding, even if singular values are zero.
/// - `margin`, if not null, receives one number per matrix: the distance of A from a matrix with an
///   ambiguous answer. It is s_k for `orthogonal` and s_{k-1} + d s_k for `rotation`. It is
///   infinite where nothing can be ambiguous: for k = 0, and for 1 x 1 rotations.
/// - `factors`, if not null, receives t and V^T as defined below, t in descending order of
///   magnitude.
/// - The gradient, with t = (s_1, ..., d s_k), U' = U D and P = U'^T G V for dL_dresult G:
///       core_ij = (P_ij - P_ji) / (t_i + t_j),
///       dL_dmatrix = U' core V^T + (I - U' U'^T) G V diag(1/t) V^T
///                    + U' diag(1/t) U'^T G (I - V V^T).
///   It has no pole at equal singular values. Where t_i + t_j (in the last two terms: t_i) is at
///   most 10 sqrt(k) machine epsilons of the largest value, the answer is ambiguous and no
///   gradient flows through that pair.
/// - A matrix or gradient with NaN or infinity gives NaN. Other matrices are not affected.
/// - Scale-free: R(c A) = R(A) for c > 0, and the gradient is 1/c times as large. If c is a power
///   of two, this is exact to the last bit.
/// - The result of a matrix does not depend on the other matrices, its position in the batch or the
///   executor, to the last bit. Another batch size may select another kernel. Then results agree to
///   rounding.
/// - m = 0, n = 0 and batch = 0 are valid. `result` may be `matrices`, and dL_dmatrix may be either
///   input of backward.
/// - polar_backward decomposes the matrix again. polar_backward_from_factors starts from the result
///   and its factors.
namespace reference {
void polar(Rectangles<const double> matrices, PolarKind kind, Rectangles<double> result,
           double* margin = nullptr, PolarFactors<double> factors = {});
void polar_backward(Rectangles<const double> matrices, Rectangles<const double> dL_dresult,
                    PolarKind kind, Rectangles<double> dL_dmatrix);
}  // namespace reference

namespace cpu {
/// Uses svd.h. Temporary memory is O(batch (m + n) k). T is float or double.
template <typename T>
void polar(Rectangles<const T> matrices, PolarKind kind, Rectangles<T> result, T* margin = nullptr,
           PolarFactors<T> factors = {}, const Executor& executor = serial());
template <typename T>
void polar_backward(Rectangles<const T> matrices, Rectangles<const T> dL_dresult, PolarKind kind,
                    Rectangles<T> dL_dmatrix, const Executor& executor = serial());
template <typename T>
void polar_backward_from_factors(Rectangles<const T> result, PolarFactors<const T> factors,
                                 Rectangles<const T> dL_dresult, Rectangles<T> dL_dmatrix,
                                 const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// For m, n <= 4 only; otherwise throws keel::Error. One launch, one thread per matrix. Each number
/// is read and written once.
template <typename T>
void polar(Rectangles<const T> matrices, PolarKind kind, Rectangles<T> result, T* margin = nullptr,
           PolarFactors<T> factors = {}, const Stream& stream = {});
template <typename T>
void polar_backward(Rectangles<const T> matrices, Rectangles<const T> dL_dresult, PolarKind kind,
                    Rectangles<T> dL_dmatrix, const Stream& stream = {});
template <typename T>
void polar_backward_from_factors(Rectangles<const T> result, PolarFactors<const T> factors,
                                 Rectangles<const T> dL_dresult, Rectangles<T> dL_dmatrix,
                                 const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
