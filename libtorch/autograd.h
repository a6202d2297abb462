#pragma once

// Records derivatives of operators as LibTorch does for its own: an autograd node for backward and a tangent for forward
// mode, once per level of functorch's transforms. torch::autograd::Function would be shorter, but LibTorch 2 rejects it
// under those transforms, and it has no forward mode.

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "types.h"

namespace keel::ops {

using torch::autograd::variable_list;

/// Whether a backward pass may reach one of these. Undefined tensors are ignored.
inline bool needs_backward(const auto& inputs) {
  if (!at::GradMode::is_enabled()) return false;
  for (const Tensor& input : inputs)
    if (input.defined() && input.requires_grad()) return true;
  return false;
}

/// The tensor's forward-mode tangent, or undefined.
inline Tensor tangent_of(const Tensor& tensor) {
  return tensor.defined() ? Tensor(tensor._fw_grad(/*level=*/0)) : tensor;
}

/// The tensor without its tangent.
inline Tensor primal_of(const Tensor& tensor) {
  return tangent_of(tensor).defined() ? tensor._fw_primal(/*level=*/0) : tensor;
}

inline bool has_tangent(const auto& inputs) {
  for (const Tensor& input : inputs)
    if (tangent_of(input).defined()) return true;
  return false;
}

/// Whether a call with these inputs must record an autograd node or tangents.
inline bool needs_graph(std::initializer_list<Tensor> inputs) {
  return needs_backward(inputs) || has_tangent(inputs);
}

// Newer LibTorch holds nodes by intrusive_ptr instead of shared_ptr. These work with both.

using NodePointer = decltype(torch::autograd::Edge::function);
inline NodePointer pointer_to(auto* node) {
  if constexpr (requires { node->getptr(); })
    return node->getptr();
  else
    return node->shared_from_this();
}
template <typename Node, typename Pointer = NodePointer, typename... Arguments>
Pointer new_node(const Arguments&... arguments) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return Pointer(new Node(arguments...), [](auto* node) { deleteNode(node); });
  else
    return c10::make_intrusive<Node>(arguments...);
}

/// An autograd node whose backward formula is a std::function.
class GraphNode : public torch::autograd::Node {
 public:
  struct Pass {
    const variable_list& grads;  ///< of the outputs; at least one is defined
    const variable_list& saved;
    const Node& node;
    /// Whether the gradient of input i is needed.
    bool wanted(std::size_t i) const { return node.task_should_compute_output(i); }
  };
  /// Returns the gradients of the inputs.
  using Formula = std::function<variable_list(const Pass&)>;

  GraphNode(std::string name, const variable_list& inputs, Formula formula)
      : Node(torch::autograd::collect_next_edges(inputs)),
        name_(std::move(name)),
        formula_(std::move(formula)) {}

  /// Saves tensors for backward. Call it after set_history has tied the outputs to this node.
  void save(const variable_list& tensors, const variable_list& outputs) {
    for (const Tensor& tensor : tensors) {
      const auto is_it = [&](const Tensor& output) { return output.is_same(tensor); };
      saved_.emplace_back(tensor, std::any_of(outputs.begin(), outputs.end(), is_it));
    }
  }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto is_defined = [](const Tensor& grad) { return grad.defined(); };
    if (std::none_of(grads.begin(), grads.end(), is_defined)) return variable_list(num_outputs());
    variable_list saved;
    for (const auto& tensor : saved_) saved.push_back(tensor.unpack(pointer_to(this)));
    return formula_({grads, saved, *this});
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& tensor : saved_) tensor.reset_data();
  }

  std::string name() const override { return name_; }

  Tensor saved_tensor(std::size_t i) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return saved_[i].unpack(pointer_to(this));
  }

 private:
  std::string name_;
  Formula formula_;
  std::vector<torch::autograd::SavedVariable> saved_;
};

/// The derivatives of one operator call.
struct Derivatives {
  const char* name;
  variable_list inputs;   ///< the differentiable inputs; may be undefined
  variable_list outputs;  ///< the differentiable outputs; integer tensors are skipped
  variable_list saved = {};
  GraphNode::Formula backward;
  /// Returns the outputs' tangents, undefined for zero. Called after the outputs join the graph and before they are saved.
  std::function<variable_list()> forward;
};

/// Connects the outputs of a call, which was made below autograd, to its inputs.
inline void record(const Derivatives& of) {
  NodePointer node;
  if (needs_backward(of.inputs)) {
    node = new_node<GraphNode>(of.name, of.inputs, of.backward);
    for (Tensor output : of.outputs)
      if (torch::autograd::isDifferentiableType(output.scalar_type()))
        torch::autograd::set_history(output, node);
  }
  if (has_tangent(of.inputs)) {
    const variable_list tangents = of.forward();
    for (std::size_t i = 0; i < tangents.size(); ++i)
      if (tangents[i].defined())
        of.outputs[i]._set_fw_grad(tangents[i], /*level=*/0, /*is_inplace_op=*/false);
  }
  if (node) static_cast<GraphNode&>(*node).save(of.saved, of.outputs);
}

/// Makes differentiating `outputs` with respect to `inputs` an error with this message.
inline void record_without_derivative(const std::string& message, const variable_list& inputs,
                                      const variable_list& outputs) {
  TORCH_CHECK(!has_tangent(inputs), message);
  record({.name = "keel::without_derivative",
          .inputs = inputs,
          .outputs = outputs,
          .backward = [message](const GraphNode::Pass&) -> variable_list {
            TORCH_CHECK(false, message);
          },
          .forward = {}});
}

/// `tensor` (..., *), set to NaN where `where` (...) is true.
Tensor nan_where(const Tensor& where, const Tensor& tensor);

/// `derivative`, which may be undefined. If `where` is true anywhere, raises an error with this message. If values cannot
/// be read (can_read_values), those entries become NaN instead.
Tensor unless_where(const Tensor& derivative, const Tensor& where, const std::string& message);

inline variable_list to_list(const Tensor& one) { return {one}; }
template <typename... Tensors>
variable_list to_list(const std::tuple<Tensors...>& all) {
  return std::apply([](const auto&... each) { return variable_list{each...}; }, all);
}

template <typename Called, const char* message>
struct WithoutDerivative;
template <OperatorName name, typename Result, typename... Arguments, const char* message>
struct WithoutDerivative<Operator<name, Result(Arguments...)>, message> {
  static Tensor tensor_in(const Tensor& tensor) { return tensor; }
  static Tensor tensor_in(const Optional<Tensor>& tensor) { return or_undefined(tensor); }
  template <typename Other>
  static Tensor tensor_in(const Other&) {
    return {};
  }
  static Result call(Arguments... arguments) {
    Result result = Operator<name, Result(Arguments...)>().below_autograd(arguments...);
    if (needs_graph({tensor_in(arguments)...}))
      record_without_derivative(message, {tensor_in(arguments)...}, to_list(result));
    return result;
  }
};

/// The autograd kernel of an operator without a derivative: differentiating it is an error with this message.
template <auto operation, const char* message>
inline constexpr auto without_derivative =
    &WithoutDerivative<std::remove_const_t<decltype(operation)>, message>::call;

}  // namespace keel::ops
