#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <initializer_list>

#include "types.h"

namespace keel::ops {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Whether a call with these inputs must leave a trace for a backward pass. Tensors that carry a
/// forward-mode tangent count: LibTorch then refuses by name instead of dropping the tangent.
inline bool needs_graph(std::initializer_list<Tensor> inputs) {
  for (const Tensor& input : inputs) {
    if (!input.defined()) continue;
    if (input.requires_grad() && at::GradMode::is_enabled()) return true;
    if (input._fw_grad(/*level=*/0).defined()) return true;
  }
  return false;
}

/// For the forward of a torch::autograd::Function: what is called here is not recorded by this layer of
/// autograd. The layers below it may: those of an outer functorch.grad are, and Function::apply has
/// switched grad mode off for all of them, so they would take every output for a constant.
struct BelowAutograd {
  const at::AutoDispatchBelowADInplaceOrView keys;
  const at::AutoGradMode graph_of_outer_layers{true};
};

/// What `compute` returns, tied to `inputs`: a backward pass that comes through it is an error with
/// this message, and one that does not is none.
struct WithoutDerivative : torch::autograd::Function<WithoutDerivative> {
  template <typename... Inputs>
  static variable_list forward(AutogradContext* ctx, const std::string& message,
                               const std::function<variable_list()>& compute, const Inputs&...) {
    const BelowAutograd below_autograd;
    ctx->saved_data["message"] = message;
    return compute();
  }

  static variable_list backward(AutogradContext* ctx, const variable_list&) {
    TORCH_CHECK(false, ctx->saved_data["message"].toStringRef());
    return {};
  }
};

}  // namespace keel::ops
