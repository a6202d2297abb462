#pragma once

// Derivatives of operators, made as LibTorch makes those of its own: a node in autograd's graph and a tangent in forward
// mode, layer by layer under functorch's transforms. torch::autograd::Function would be shorter, but LibTorch 2
// refuses it under every such transform, and it has no forward mode.

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

/// Whether a backward pass may come back to one of these. Undefined tensors pass.
inline bool needs_backward(const auto& inputs) {
  if (!at::GradMode::is_enabled()) return false;
  for (const Tensor& input : inputs)
    if (input.defined() && input.requires_grad()) return true;
  return false;
}

/// The derivative that a tensor carries in forward mode, or undefined.
inline Tensor tangent_of(const Tensor& tensor) {
  return tensor.defined() ? Tensor(tensor._fw_grad(/*level=*/0)) : tensor;
}

/// The tensor without it.
inline Tensor primal_of(const Tensor& tensor) {
  return tangent_of(tensor).defined() ? tensor._fw_primal(/*level=*/0) : tensor;
}

inline bool has_tangent(const auto& inputs) {
  for (const Tensor& input : inputs)
    if (tangent_of(input).defined()) return true;
  return false;
}

/// Whether a call with these inputs has to leave more than its results: a node of the graph, or tangents.
inline bool needs_graph(std::initializer_list<Tensor> inputs) {
  return needs_backward(inputs) || has_tangent(inputs);
}

// LibTorch moved from shared_ptr to its own pointer for nodes; these follow whichever it uses.

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

/// A node of autograd's graph whose formula is a function.
class GraphNode : public torch::autograd::Node {
 public:
  struct Pass {
    const variable_list& grads;  ///< of the outputs; undefined where none came, but not all of them
    const variable_list& saved;
    const Node& node;
    /// Whether anybody asks for the gradient of input i.
    bool wanted(std::size_t i) const { return node.task_should_compute_output(i); }
  };
  /// The gradients of the inputs.
  using Formula = std::function<variable_list(const Pass&)>;

  GraphNode(std::string name, const variable_list& inputs, Formula formula)
      : Node(torch::autograd::collect_next_edges(inputs)),
        name_(std::move(name)),
        formula_(std::move(formula)) {}

  /// After the outputs have this node as theirs.
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

 private:
  std::string name_;
  Formula formula_;
  std::vector<torch::autograd::SavedVariable> saved_;
};

/// The derivatives of one call.
struct Derivatives {
  const char* name;
  variable_list inputs;   ///< those that may have a gradient; may be undefined
  variable_list outputs;  ///< those that have one; whole numbers are passed over
  variable_list saved = {};
  GraphNode::Formula backward;
  /// The outputs' tangents, undefined for zero. Called after the outputs are in the graph and before they are saved.
  std::function<variable_list()> forward;
};

/// Ties the outputs of a call to its inputs. The call itself was made below autograd.
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

/// Ties `outputs` to `inputs`: a derivative that comes through them is an error with this message, and one that does
/// not is none.
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

/// `tensor` (..., *) with NaN where `where` (...) is true.
Tensor nan_where(const Tensor& where, const Tensor& tensor);

/// A derivative that may be undefined, unless `where` is true anywhere: that is an error with this message, or NaN for
/// those entries where nobody can wait to see which.
Tensor unless_where(const Tensor& derivative, const Tensor& where, const std::string& message);

inline variable_list listed(const Tensor& one) { return {one}; }
template <typename... Tensors>
variable_list listed(const std::tuple<Tensors...>& all) {
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
      record_without_derivative(message, {tensor_in(arguments)...}, listed(result));
    return result;
  }
};

/// The autograd layer of an operator that has no derivative: a derivative through it is an error with this
/// message.
template <auto operation, const char* message>
inline constexpr auto without_derivative =
    &WithoutDerivative<std::remove_const_t<decltype(operation)>, message>::call;

}  // namespace keel::ops
