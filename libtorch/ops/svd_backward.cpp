// The gradient of svd.cpp under a gradient rule. The formula, in tensor operations, is in svd_formula.h.

#include "autograd.h"
#include "check.h"
#include "gradient_rule_formula.h"
#include "keel/gradient_rule.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "svd_formula.h"

namespace keel::ops {
namespace {

constexpr const char* kSvdBackward = "keel::svd_backward";

GradientRule checked_svd_rule(const Optional<Tensor>& grad_left,
                              const Optional<Tensor>& grad_values,
                              const Optional<Tensor>& grad_right, const Tensor& left,
                              const Tensor& values, const Tensor& right, StringView rule) {
  check_rectangles(kSvdBackward, left);
  check_rectangles(kSvdBackward, right);
  check_like(kSvdBackward, "grad_left", or_undefined(grad_left), left);
  check_like(kSvdBackward, "grad_values", or_undefined(grad_values), values);
  check_like(kSvdBackward, "grad_right", or_undefined(grad_right), right);
  return parsed(gradient_rule, kSvdBackward, rule);
}

Tensor svd_backward_kernel(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                           const Optional<Tensor>& grad_right, const Tensor& left,
                           const Tensor& values, const Tensor& right, StringView rule) {
  const GradientRule chosen =
      checked_svd_rule(grad_left, grad_values, grad_right, left, values, right, rule);
  if (left.is_meta()) return empty_beside(left, {left.sym_size(-2), right.sym_size(-1)});
  return svd_backward_formula(chosen, in_compute_type(or_undefined(grad_left)),
                              in_compute_type(or_undefined(grad_values)),
                              in_compute_type(or_undefined(grad_right)), in_compute_type(left),
                              in_compute_type(values), in_compute_type(right))
      .to(left.scalar_type());
}

Tensor svd_backward_autograd(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                             const Optional<Tensor>& grad_right, const Tensor& left,
                             const Tensor& values, const Tensor& right, StringView rule) {
  const Tensor dL_dleft = or_undefined(grad_left), dL_dvalues = or_undefined(grad_values),
               dL_dright = or_undefined(grad_right);
  if (!needs_graph({dL_dleft, dL_dvalues, dL_dright, left, values, right}))
    return svd_backward.below_autograd(grad_left, grad_values, grad_right, left, values, right,
                                       rule);
  const GradientRule chosen =
      checked_svd_rule(grad_left, grad_values, grad_right, left, values, right, rule);
  const Tensor u = in_compute_type(left), s = in_compute_type(values), v = in_compute_type(right);
  Tensor dL_dmatrix =
      svd_backward_formula(chosen, in_compute_type(dL_dleft), in_compute_type(dL_dvalues),
                           in_compute_type(dL_dright), u, s, v);
  dL_dmatrix = once_where_masked(chosen, dL_dmatrix, u, s, v);
  return dL_dmatrix.to(left.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "svd_backward(Tensor? grad_left, Tensor? grad_values, Tensor? grad_right, Tensor left,"
      " Tensor values, Tensor right, str rule='masked') -> Tensor");
}
KEEL_OPERATOR("svd_backward", &svd_backward_kernel, &svd_backward_autograd)

}  // namespace keel::ops
