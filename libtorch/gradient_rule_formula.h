#pragma once

#include "keel/gradient_rule.h"
#include "types.h"

namespace keel::ops {

/// The rule's formula in differentiable tensor operations: what a backward pass that builds a graph
/// uses, so that the rule is applied again to its own backward. Undefined gradients count as zero.
Tensor gradient_rule_formula(const GradientRule& rule, const Tensor& values, const Tensor& vectors,
                             const Tensor& dL_dvalues, const Tensor& dL_dvectors);

/// Which pairs i != j of (..., n) eigenvalues the rule leaves out: (..., n, n).
Tensor masked_pairs(const Masked& rule, const Tensor& values);

/// Machine epsilon of the tensor's type, float32 or float64.
double epsilon_of(const Tensor& tensor);

}  // namespace keel::ops
