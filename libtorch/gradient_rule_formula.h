#pragma once

#include "keel/gradient_rule.h"
#include "types.h"

namespace keel::ops {

/// The rule's formula in differentiable tensor operations: what a backward pass that builds a graph
/// uses, so that the rule is applied again to its own backward. Undefined gradients count as zero.
Tensor gradient_rule_formula(const GradientRule& rule, const Tensor& values, const Tensor& vectors,
                             const Tensor& dL_dvalues, const Tensor& dL_dvectors);

}  // namespace keel::ops
