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

struct WithoutDerivativeWhere : torch::autograd::Function<WithoutDerivativeWhere> {
  static Tensor forward(AutogradContext* ctx, const Tensor& tensor, const Tensor& where,
                        const std::string& message) {
    const BelowAutograd below_autograd;
    ctx->set_materialize_grads(false);
    ctx->saved_data["message"] = message;
    ctx->save_for_backward({where});
    return without_derivative_where(tensor, where, message);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const Tensor& grad = grads[0];
    if (!grad.defined()) return variable_list(3);
    const Tensor where = ctx->get_saved_variables()[0];
    if (!where.is_meta() && can_be_waited_for(where)) {
      TORCH_CHECK(!where.any().item<bool>(), ctx->saved_data["message"].toStringRef());
      return {grad, Tensor(), Tensor()};
    }
    return {at::where(where.unsqueeze(-1).unsqueeze(-1), at::full_like(grad, NAN), grad), Tensor(),
            Tensor()};
  }
};

Tensor without_derivative_where_autograd(const Tensor& tensor, const Tensor& where,
                                         StringView message) {
  if (!needs_graph({tensor})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return without_derivative_where(tensor, where, message);
  }
  return WithoutDerivativeWhere::apply(tensor, where, text(message));
}

}  // namespace

// An operator, so that each layer of nested functorch.grad has its own node of it.
TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("without_derivative_where(Tensor tensor, Tensor where, str message) -> Tensor");
}
KEEL_OPERATOR("without_derivative_where", &passed_on, &passed_on,
              &without_derivative_where_autograd)

}  // namespace keel::ops
