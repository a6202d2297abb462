// Identities with a derivative of another kind: an error or NaN where the derivative is unknown, or that of a formula.

#include "autograd.h"
#include "device.h"
#include "ops/operators.h"

namespace keel::ops {

Tensor nan_where(const Tensor& where, const Tensor& tensor) {
  Tensor of_each = where;
  while (of_each.dim() < tensor.dim()) of_each = of_each.unsqueeze(-1);
  const at::Scalar nan =
      tensor.is_complex() ? at::Scalar(c10::complex<double>(NAN, NAN)) : at::Scalar(double(NAN));
  return at::where(of_each, at::full_like(tensor, nan), tensor);
}

Tensor unless_where(const Tensor& derivative, const Tensor& where, const std::string& message) {
  if (!derivative.defined() || where.is_meta()) return derivative;
  if (!can_read_values(where)) return nan_where(where, derivative);
  TORCH_CHECK(!where.any().item<bool>(), message);
  return derivative;
}

namespace {

Tensor without_derivative_where_kernel(const Tensor& tensor, const Tensor&, StringView) {
  return tensor.clone();
}

Tensor without_derivative_where_autograd(const Tensor& tensor, const Tensor& where,
                                         StringView message) {
  const Tensor result = without_derivative_where.below_autograd(tensor, where, message);
  if (!needs_graph({tensor})) return result;
  record({.name = "keel::without_derivative_where",
          .inputs = {tensor},
          .outputs = {result},
          .saved = {where},
          .backward = [words = text(message)](const GraphNode::Pass& pass) -> variable_list {
            return {unless_where(pass.grads[0], pass.saved[0], words)};
          },
          .forward = [&]() -> variable_list {
            return {unless_where(tangent_of(tensor), where, text(message))};
          }});
  return result;
}

// A gradient's value comes from a kernel, and its derivatives come from a formula. Formulas that are smooth where singular
// values repeat lose digits for badly conditioned matrices; the kernels do not.

Tensor with_derivatives_of_kernel(const Tensor& value, const Tensor&) { return value.clone(); }

Tensor with_derivatives_of_autograd(const Tensor& value, const Tensor& formula) {
  const Tensor result = with_derivatives_of.below_autograd(value, formula);
  if (!needs_graph({formula})) return result;
  record({.name = "keel::with_derivatives_of",
          .inputs = {formula},
          .outputs = {result},
          .backward = [](const GraphNode::Pass& pass) -> variable_list { return {pass.grads[0]}; },
          .forward = [&]() -> variable_list { return {tangent_of(formula)}; }});
  return result;
}

}  // namespace

// Registered as operators, so that each level of nested transforms records its own node.
TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("without_derivative_where(Tensor tensor, Tensor where, str message) -> Tensor");
  m.def("with_derivatives_of(Tensor value, Tensor formula) -> Tensor");
}
KEEL_OPERATOR("without_derivative_where", &without_derivative_where_kernel,
              &without_derivative_where_autograd)
KEEL_OPERATOR("with_derivatives_of", &with_derivatives_of_kernel, &with_derivatives_of_autograd)

}  // namespace keel::ops
