#pragma once

#include <torch/csrc/autograd/variable.h>

#include "keel/gradient_rule.h"
#include "types.h"

namespace keel::ops {

/// The gradient of A = left diag(values) right under the rule (docs/rectangular.md), in differentiable operations. At
/// least one of the incoming gradients is defined; undefined ones count as zero.
Tensor svd_backward_formula(const GradientRule& rule, const Tensor& dL_dleft,
                            const Tensor& dL_dvalues, const Tensor& dL_dright, const Tensor& left,
                            const Tensor& values, const Tensor& right);

/// Its adjoint: the tangents of left, values and right under the rule, for the matrix's tangent `along`.
torch::autograd::variable_list svd_tangents(const GradientRule& rule, const Tensor& along,
                                            const Tensor& left, const Tensor& values,
                                            const Tensor& right);

/// A first derivative under the rule. Differentiating it again is an error where the masked rule leaves pairs out, because
/// the derivative of what it leaves out is unknown.
Tensor once_where_masked(const GradientRule& rule, const Tensor& derivative, const Tensor& left,
                         const Tensor& values, const Tensor& right);

}  // namespace keel::ops
