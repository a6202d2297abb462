#pragma once

#include "gradient_rule_formula.h"
#include "types.h"

namespace keel::ops {

/// Whether U, or V, has a nonempty orthogonal complement.
inline bool has_beside_left(const Tensor& left) { return left.sym_size(-1) < left.sym_size(-2); }
inline bool has_beside_right(const Tensor& right) {
  return right.sym_size(-2) < right.sym_size(-1);
}

/// The last step of every gradient of singular values and vectors (docs/rectangular.md). With U = left (..., m, k) and
/// V^H = right (..., k, n),
///     U core V^H + (I - U U^H) beside_left V^H + U beside_right (I - V V^H).
/// The last two terms vanish if U or V is square. An undefined `beside_` counts as zero.
inline Tensor in_both_bases(const Tensor& left, const Tensor& right, const Tensor& core,
                            const Tensor& beside_left, const Tensor& beside_right) {
  if (has_beside_left(left) && beside_left.defined())
    return (left.matmul(core - left.mH().matmul(beside_left)) + beside_left).matmul(right);
  if (has_beside_right(right) && beside_right.defined())
    return left.matmul((core - beside_right.matmul(right.mH())).matmul(right) + beside_right);
  return left.matmul(core).matmul(right);
}

/// x_i + x_j of (..., k) values: (..., k, k).
inline Tensor pair_sums(const Tensor& values) {
  return values.unsqueeze(-1) + values.unsqueeze(-2);
}

/// Which of the k values, the largest first, are kept, as (..., k). The sizes may be symbolic.
inline Tensor is_kept(const Tensor& values, const Tensor& kept) {
  return at::ones_like(values, kept.options()).cumsum(-1) <= kept.unsqueeze(-1);
}

/// numerator / x, and 0 where x is within rounding of 0 relative to the largest of `values`: there the factors are
/// ambiguous. Shapes as in quotient().
inline Tensor bounded_quotient(const Tensor& numerator, const Tensor& x, const Tensor& values) {
  return quotient(Masked{}, numerator, x, values);
}

/// Whether to use the core's polar. On CUDA it takes matrices up to 4 x 4. On the CPU its plain loops are faster for so few
/// numbers that a dozen tensor operations cost more. The core's is real.
inline bool is_small(const Tensor& matrix) {
  if (matrix.is_complex()) return false;
  return matrix.is_cuda() ? matrix.size(-2) <= 4 && matrix.size(-1) <= 4 : matrix.numel() <= 1024;
}

}  // namespace keel::ops
