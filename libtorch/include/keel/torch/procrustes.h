#pragma once

#include <torch/types.h>

namespace keel {

/// The nearest matrix with orthonormal columns (rows for m < n) in the Frobenius norm: U V^T of A = U S V^T, the polar factor.
///
/// - The gradient is exact, even at repeated singular values and for square matrices of rank n - 1.
/// - It does not exist where the answer is ambiguous: where two values vanish, or one for m != n. Pairs whose sum is at most
///   10 sqrt(k) machine epsilons times the largest value get 0, so that the gradient is always finite.
/// - Differentiable to any order. float16 and bfloat16 are computed in float32. A matrix with NaN gives NaN and does not
///   affect the others of its batch.
torch::Tensor procrustes(const torch::Tensor& matrix);

struct Rotation {
  torch::Tensor rotation;  ///< (..., n, n), orthogonal, of determinant 1
  /// (...): s_(n-1) + sign(det A) s_n, infinite for n = 1. No gradient flows through it.
  torch::Tensor margin;
};

/// The nearest rotation to (..., n, n) matrices in the Frobenius norm: U diag(1, ..., 1, d) V^T with d = det(U V^T).
///
/// - The gradient is exact, even at repeated singular values. It does not exist at margin 0, where several rotations are
///   equally near: the answer is one of them, and the ambiguous pair of directions gets gradient 0, as soon as the margin is
///   at most 10 sqrt(n) machine epsilons times the largest singular value.
/// - The gradient grows like 2 / margin. Use the margin to mask such matrices out.
/// - Everything else as in procrustes.
Rotation special_procrustes(const torch::Tensor& matrix);

}  // namespace keel
