#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <utility>

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

inline variable_list listed(const Tensor& one) { return {one}; }
template <typename... Tensors>
variable_list listed(const std::tuple<Tensors...>& all) {
  return std::apply([](const auto&... each) { return variable_list{each...}; }, all);
}

template <typename Result>
Result unlisted(const variable_list& all) {
  if constexpr (std::is_same_v<Result, Tensor>)
    return all[0];
  else
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return Result(all[I]...); }
  (std::make_index_sequence<std::tuple_size_v<Result>>());
}

template <auto Operator, const char* Message>
struct OperatorWithoutDerivative;
template <typename Result, typename... Arguments, Result (*Operator)(Arguments...),
          const char* Message>
struct OperatorWithoutDerivative<Operator, Message> {
  static Tensor tensor_in(const Tensor& tensor) { return tensor; }
  static Tensor tensor_in(const Optional<Tensor>& tensor) { return or_undefined(tensor); }
  template <typename Other>
  static Tensor tensor_in(const Other&) {
    return {};
  }
  static Result call(Arguments... arguments) {
    const auto compute = [&] {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      return Operator(arguments...);
    };
    if (!needs_graph({tensor_in(arguments)...})) return compute();
    return unlisted<Result>(WithoutDerivative::apply(
        std::string(Message), std::function<variable_list()>([&] { return listed(compute()); }),
        arguments...));
  }
};

/// The autograd layer of an operator that has no derivative: a backward pass through it is an error with this
/// message. `Operator` is its function in calls.h.
template <auto Operator, const char* Message>
inline constexpr auto without_derivative = &OperatorWithoutDerivative<Operator, Message>::call;

}  // namespace keel::ops
