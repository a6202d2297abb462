// A gradient whose value comes from a kernel and whose derivatives come from a formula. Formulas that are smooth where
// singular values repeat lose digits for badly conditioned matrices; the kernels do not.

#include "autograd.h"
#include "ops/operators.h"

namespace keel::ops {

namespace {

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

// Registered as an operator, so that each level of nested transforms records its own node.
TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("with_derivatives_of(Tensor value, Tensor formula) -> Tensor");
}
KEEL_OPERATOR("with_derivatives_of", &with_derivatives_of_kernel, &with_derivatives_of_autograd)

}  // namespace keel::ops
