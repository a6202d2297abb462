#pragma once

#include <torch/csrc/autograd/variable.h>

#include "keel/gradient_rule.h"
#include "types.h"

namespace keel::ops {

/// The gradient of A = left diag(values) right, under the rule (docs/rectangular.md). Undefined gradients are zero, but not all
/// of them. In differentiable operations.
Tensor svd_backward_formula(const GradientRule& rule, const Tensor& dL_dleft,
                            const Tensor& dL_dvalues, const Tensor& dL_dright, const Tensor& left,
                            const Tensor& values, const Tensor& right);

/// The adjoint of it: how left, values and right move, to the rule, where the matrix moves along `along`.
torch::autograd::variable_list svd_tangents(const GradientRule& rule, const Tensor& along,
                                            const Tensor& left, const Tensor& values,
                                            const Tensor& right);

/// A first derivative under the rule. What the masked rule leaves out has a derivative of its own, which nobody knows here.
Tensor once_where_masked(const GradientRule& rule, const Tensor& derivative, const Tensor& left,
                         const Tensor& values, const Tensor& right);

}  // namespace keel::ops
