// A gradient as its kernel gives it, which a formula differentiates further. Formulas that are smooth where singular values
// repeat lose digits to the condition that kernels keep.

#include "autograd.h"
#include "ops/operators.h"

namespace keel::ops {

namespace {

Tensor value_alone(const Tensor& value, const Tensor&) { return value.clone(); }

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

// An operator, so that each layer of nested transforms has its own node of it.
TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("with_derivatives_of(Tensor value, Tensor formula) -> Tensor");
}
KEEL_OPERATOR("with_derivatives_of", &value_alone, &value_alone, &with_derivatives_of_autograd)

}  // namespace keel::ops
