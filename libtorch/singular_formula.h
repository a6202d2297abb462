#pragma once

#include "types.h"

namespace keel::ops {

/// What every gradient of singular values and vectors ends in (docs/rectangular.md): with U = left (..., m, k) and V^T = right
/// (..., k, n),
///     U core V^T + (I - U U^T) beside_left V^T + U beside_right (I - V V^T).
/// The last two are zero where U or V is square, and an undefined `beside_` is zero too.
Tensor in_both_bases(const Tensor& left, const Tensor& right, const Tensor& core,
                     const Tensor& beside_left, const Tensor& beside_right);

/// Whether there is anything beside the columns of U, and beside those of V.
inline bool has_beside_left(const Tensor& left) { return left.sym_size(-1) < left.sym_size(-2); }
inline bool has_beside_right(const Tensor& right) {
  return right.sym_size(-2) < right.sym_size(-1);
}

/// x_i + x_j of (..., k) values: (..., k, k).
inline Tensor pair_sums(const Tensor& values) {
  return values.unsqueeze(-1) + values.unsqueeze(-2);
}

/// numerator / x, 0 where x is within rounding of 0 beside the largest of `values`: that is where factors are ambiguous. Shapes
/// as in quotient().
Tensor bounded_quotient(const Tensor& numerator, const Tensor& x, const Tensor& values);

/// Whether the core's polar is the faster way: on CUDA where it takes them, up to 4 x 4; on the CPU where there are so few
/// numbers that a dozen calls of tensor operations take longer than its plain loops.
inline bool is_small(const Tensor& matrix) {
  return matrix.is_cuda() ? matrix.size(-2) <= 4 && matrix.size(-1) <= 4 : matrix.numel() <= 1024;
}

}  // namespace keel::ops
