// The identity, with an error or NaN as its derivative where a further derivative is not known.

#include "autograd.h"
#include "device.h"
#include "ops/operators.h"

namespace keel::ops {

Tensor without_derivative_where(const Tensor& tensor, const Tensor& where, StringView message) {
  static const auto op =
      operator_named<decltype(without_derivative_where)>("keel::without_derivative_where");
  return op.call(tensor, where, message);
}

namespace {

Tensor passed_on(const Tensor& tensor, const Tensor&, StringView) { return tensor.clone(); }

/// `derivative` where there is one.
Tensor unless_where(const Tensor& derivative, const Tensor& where, const std::string& message) {
  if (!derivative.defined() || where.is_meta()) return derivative;
  if (can_be_waited_for(where)) {
    TORCH_CHECK(!where.any().item<bool>(), message);
    return derivative;
  }
  Tensor of_each = where;
  while (of_each.dim() < derivative.dim()) of_each = of_each.unsqueeze(-1);
  return at::where(of_each, at::full_like(derivative, NAN), derivative);
}

Tensor without_derivative_where_autograd(const Tensor& tensor, const Tensor& where,
                                         StringView message) {
  const auto compute = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return without_derivative_where(tensor, where, message);
  };
  const Tensor result = compute();
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

}  // namespace

// An operator, so that each layer of nested transforms has its own node of it.
TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("without_derivative_where(Tensor tensor, Tensor where, str message) -> Tensor");
}
KEEL_OPERATOR("without_derivative_where", &passed_on, &passed_on,
              &without_derivative_where_autograd)

}  // namespace keel::ops
