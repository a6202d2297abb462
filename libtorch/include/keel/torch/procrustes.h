#pragma once

#include <torch/types.h>

namespace keel {

/// The nearest matrix with orthonormal columns, for m < n rows, in the Frobenius norm: U V^T of A = U S V^T, the polar factor.
///
/// - The gradient is exact, also at repeated singular values and for square matrices of rank n - 1.
/// - It ends where the answer does: at two values that vanish, and at one beside a direction that the factor leaves out
///   (m != n). Pairs whose sum is within 10 sqrt(k) machine epsilons of the largest value get 0, so that it is always finite.
/// - Differentiable to any order. float16 and bfloat16 are computed in float32. A matrix with NaN gives NaN for itself alone.
torch::Tensor procrustes(const torch::Tensor& matrix);

struct Rotation {
  torch::Tensor rotation;  ///< (..., n, n), orthogonal, of determinant 1
  torch::Tensor
      margin;  ///< (...), s_(n-1) + sign(det A) s_n, infinite for n = 1; without a gradient
};

/// The nearest rotation to (..., n, n) matrices in the Frobenius norm: U diag(1, ..., 1, d) V^T with d = det(U V^T).
///
/// - The gradient is exact, also at repeated singular values. It ends where two rotations are equally near, at margin 0:
///   the answer is one of them, and the pair of directions that is ambiguous gets gradient 0, as soon as the margin is within
///   10 sqrt(n) machine epsilons of the largest singular value.
/// - The gradient grows like 2 / margin. Masks are made of the margin.
/// - All else as procrustes.
Rotation special_procrustes(const torch::Tensor& matrix);

}  // namespace keel
