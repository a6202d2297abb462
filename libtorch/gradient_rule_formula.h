#pragma once

#include <utility>

#include "keel/gradient_rule.h"
#include "types.h"

namespace keel::ops {

/// The rule's formula in differentiable tensor operations: what a backward pass that builds a graph
/// uses, so that the rule is applied again to its own backward. Undefined gradients count as zero.
Tensor gradient_rule_formula(const GradientRule& rule, const Tensor& values, const Tensor& vectors,
                             const Tensor& dL_dvalues, const Tensor& dL_dvectors);

/// The adjoint of it: how eigenvalues and eigenvectors move, to the rule, where the matrix moves along a matrix whose
/// symmetric part is taken.
std::pair<Tensor, Tensor> gradient_rule_tangents(const GradientRule& rule, const Tensor& values,
                                                 const Tensor& vectors, const Tensor& along);

/// Which pairs i != j of (..., n) eigenvalues the rule leaves out: (..., n, n).
Tensor masked_pairs(const Masked& rule, const Tensor& values);

/// numerator / x for sums and values x >= 0 of singular `values` (..., k), bounded as the rule bounds quotients by gaps
/// (docs/rectangular.md, "Zero"). 0 / 0 is 0. The numerator is (..., a, b), and x broadcasts with it.
Tensor quotient(const GradientRule& rule, const Tensor& numerator, const Tensor& x,
                const Tensor& values);

/// Under which a singular value, or a sum or difference of two, counts as zero: the default of Masked{}, as (..., 1).
Tensor noise_of(const Tensor& values, const Masked& rule = {});

/// numerator / denominator where `chosen`, zero elsewhere, also for gradients.
Tensor divide_where(const Tensor& chosen, const Tensor& numerator, const Tensor& denominator);

/// Machine epsilon of the tensor's type, float32 or float64.
double epsilon_of(const Tensor& tensor);

}  // namespace keel::ops
