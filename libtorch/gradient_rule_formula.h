#pragma once

#include <utility>

#include "keel/gradient_rule.h"
#include "types.h"

namespace keel::ops {

/// The rule's formula in differentiable tensor operations, for a backward pass that builds a graph (create_graph). The
/// rule is then applied to its own backward. Undefined gradients count as zero.
Tensor gradient_rule_formula(const GradientRule& rule, const Tensor& values, const Tensor& vectors,
                             const Tensor& dL_dvalues, const Tensor& dL_dvectors);

/// Its adjoint: the tangents of eigenvalues and eigenvectors under the rule, for the symmetric part of the matrix's
/// tangent `along`.
std::pair<Tensor, Tensor> gradient_rule_tangents(const GradientRule& rule, const Tensor& values,
                                                 const Tensor& vectors, const Tensor& along);

/// The pairs i != j of (..., n) eigenvalues that the rule leaves out, as (..., n, n).
Tensor masked_pairs(const Masked& rule, const Tensor& values);

/// numerator / x, where x >= 0 is a singular value or a sum of two of `values` (..., k). Bounded as the rule bounds
/// quotients by gaps (docs/rectangular.md, "Zero"). 0 / 0 is 0. The numerator is (..., a, b), and x broadcasts with it.
Tensor quotient(const GradientRule& rule, const Tensor& numerator, const Tensor& x,
                const Tensor& values);

/// The threshold below which a singular value, or a sum or difference of two, counts as zero, as (..., 1). The default is
/// that of Masked{}.
Tensor noise_of(const Tensor& values, const Masked& rule = {});

/// numerator / denominator for a real denominator. LibTorch's quotient of complex numbers overflows long before the result
/// does, and its rounding depends on the place in memory.
Tensor divided(const Tensor& numerator, const Tensor& denominator);

/// numerator / denominator where `chosen`, zero elsewhere. The gradient is zero there too.
Tensor divide_where(const Tensor& chosen, const Tensor& numerator, const Tensor& denominator);

/// S_count(q) = 1 + q + ... + q^(count - 1). Doubling needs no division, so it is exact at q = 1.
Tensor geometric_sum(const Tensor& q, int count);

/// Machine epsilon of the tensor's type, that of its parts if it is complex.
double epsilon_of(const Tensor& tensor);

}  // namespace keel::ops
