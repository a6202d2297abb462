#pragma once

// Stage: matrix -> nearest orthogonal matrix or rotation, and its gradient.

#include <cstdint>

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// What backward needs besides the polar factor itself, so that it does not have to decompose again.
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

/// The polar factor of m x n matrices A = U diag(s) V^T, k = min(m, n), s descending: the matrix R = U D V^T nearest to
/// A (Procrustes, Kabsch, Wahba). D = diag(1, ..., 1, d), where d = det(U) det(V) for `rotation` and 1 for `orthogonal`.
/// The contract, for every backend:
///
/// - R is orthonormal to rounding, even where values are zero.
/// - `margin`, if not null, receives one number per matrix: how far A is from one whose answer is ambiguous. s_k for
///   `orthogonal`; s_{k-1} + d s_k for `rotation`. Infinity where nothing can be ambiguous: k = 0, rotations of one row.
/// - `factors`, if not null, receives t and V^T of what follows, t descending by magnitude.
/// - The gradient, with t = (s_1, ..., d s_k), U' = U D, P = U'^T G V for dL_dresult G:
///       core_ij = (P_ij - P_ji) / (t_i + t_j),
///       dL_dmatrix = U' core V^T + (I - U' U'^T) G V diag(1/t) V^T + U' diag(1/t) U'^T G (I - V V^T).
///   No pole at equal values. Where t_i + t_j, or t_i in the last two terms, is 10 sqrt(k) machine epsilons of the
///   largest value or less, the answer is ambiguous and nothing flows through that pair.
/// - A matrix with NaN or infinity gives NaN, as does a gradient with one, and no other matrix is affected.
/// - Scale-free: R(c A) = R(A), and its gradient is 1/c times as large, for c > 0 a power of two to the last bit.
/// - A matrix's result does not depend on its batch-mates, its place in the batch or the executor, to the last bit.
///   Another batch size may select another kernel: then results agree to rounding.
/// - m = 0, n = 0 and batch = 0 are valid. `result` may be `matrices`, and dL_dmatrix either input of backward.
/// - Backward starts from the matrix, which it decomposes again, or from the result and its factors.
namespace reference {
void polar(Rectangles<const double> matrices, PolarKind kind, Rectangles<double> result,
           double* margin = nullptr, PolarFactors<double> factors = {});
void polar_backward(Rectangles<const double> matrices, Rectangles<const double> dL_dresult,
                    PolarKind kind, Rectangles<double> dL_dmatrix);
}  // namespace reference

namespace cpu {
/// By svd.h. Temporary memory is O(batch (m + n) k). T is float or double.
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
/// m, n <= 4 only, else keel::Error: one launch, a thread a matrix, each number read and written once.
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
