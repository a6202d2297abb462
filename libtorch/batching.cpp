// Batching rules for torch.func.vmap. The mapped dimension becomes more matrices, or more groups of channels, of one
// call. Without these rules vmap would call an operator once per entry.

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>

#include <algorithm>

#include "types.h"

namespace keel::ops {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

/// A tensor argument under vmap: its place in the stack and its mapped dimension.
struct Mapped {
  std::size_t place;
  std::string name;
  Tensor tensor;
  std::int64_t dim;  ///< -1 if not mapped: every entry sees the same tensor
};

/// The tensor arguments, unwrapped from the current vmap level, and that level's batch size.
struct Call {
  std::vector<Mapped> tensors;
  std::int64_t level, entries = 0;

  Call(const OperatorHandle& op, const Stack& stack)
      : level(at::functorch::maybeCurrentDynamicLayer()->layerId()) {
    const auto& arguments = op.schema().arguments();
    const std::size_t begin = stack.size() - arguments.size();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto& value = stack[begin + i];
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      Tensor tensor = value.toTensor();
      std::int64_t dim = -1;
      const auto* const batched = at::functorch::maybeGetBatchedImpl(tensor);
      if (batched != nullptr && batched->level() == level) {
        dim = batched->bdim();
        tensor = batched->value();
        entries = tensor.sym_size(dim).guard_int(__FILE__, __LINE__);
      }
      tensors.push_back({begin + i, arguments[i].name(), tensor, dim});
    }
  }

  /// Whether this level maps over any argument. All of them may belong to other levels.
  bool maps() const {
    return std::any_of(tensors.begin(), tensors.end(), [](const Mapped& t) { return t.dim >= 0; });
  }

  /// The tensor with the mapped dimension moved to `place`.
  Tensor with_entries(const Mapped& mapped, std::int64_t place) const {
    if (mapped.dim >= 0) return mapped.tensor.movedim(mapped.dim, place);
    const Tensor one = mapped.tensor.unsqueeze(place);
    auto sizes = one.sym_sizes().vec();
    sizes[std::size_t(place)] = entries;
    return one.expand_symint(sizes);
  }

  /// Wraps a result whose mapped dimension is `place`.
  Tensor back(const Tensor& result, std::int64_t place) const {
    return at::functorch::makeBatched(result, place, level);
  }
};

c10::impl::ExcludeDispatchKeyGuard below_vmap() {
  return c10::impl::ExcludeDispatchKeyGuard(c10::DispatchKey::FuncTorchBatched);
}

/// For operators on (..., m, n): the mapped dimension becomes the leading batch dimension.
void map_as_matrices(const OperatorHandle& op, Stack* stack) {
  const auto guard = below_vmap();
  const Call call(op, *stack);
  if (!call.maps()) return op.callBoxed(stack);
  for (const Mapped& mapped : call.tensors) (*stack)[mapped.place] = call.with_entries(mapped, 0);
  op.callBoxed(stack);
  const std::size_t results = op.schema().returns().size();
  for (std::size_t i = stack->size() - results; i < stack->size(); ++i)
    (*stack)[i] = call.back((*stack)[i].toTensor(), 0);
}

/// Whether an argument or result of this name is (N, C, *). All others are (C, *) or (G, *). A single result has no name.
bool has_samples(const std::string& name) {
  const char* const names[] = {"input",  "grad_output", "left",     "right",
                               "output", "grad_input",  "residual", ""};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// For operators on activations: the mapped dimension becomes more groups of channels.
void map_as_groups(const OperatorHandle& op, Stack* stack) {
  const auto guard = below_vmap();
  const Call call(op, *stack);
  if (!call.maps()) return op.callBoxed(stack);
  for (const Mapped& mapped : call.tensors) {
    const std::int64_t channels = has_samples(mapped.name) ? 1 : 0;
    (*stack)[mapped.place] = call.with_entries(mapped, channels).flatten(channels, channels + 1);
  }
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (auto& value = (*stack)[stack->size() - arguments.size() + i];
        arguments[i].name() == "groups")
      value = value.toInt() * call.entries;
  op.callBoxed(stack);
  const auto& returns = op.schema().returns();
  for (std::size_t i = 0; i < returns.size(); ++i) {
    auto& value = (*stack)[stack->size() - returns.size() + i];
    const Tensor result = value.toTensor();
    const std::int64_t channels = has_samples(returns[i].name()) ? 1 : 0;
    auto sizes = result.sym_sizes().vec();
    sizes[std::size_t(channels)] = sizes[std::size_t(channels)] / call.entries;
    sizes.insert(sizes.begin() + channels, call.entries);
    value = call.back(result.reshape_symint(sizes), channels);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(keel, FuncTorchBatched, m) {
  using torch::CppFunction;
  for (const char* name : {"eigh",
                           "eigh_backward",
                           "eigvalsh",
                           "with_second_at_repeats",
                           "spectral",
                           "spectral_backward",
                           "spectral_second_backward",
                           "decompose",
                           "spectral_of",
                           "spectral_of_backward",
                           "spectral_of_weights",
                           "spectral_of_second",
                           "spectral_result",
                           "sqrtm",
                           "inv_sqrtm",
                           "invm",
                           "logm",
                           "expm",
                           "powm",
                           "projector",
                           "generalized_eigh",
                           "generalized_projector",
                           "layer_matrix",
                           "layer_matrix_backward",
                           "layer_matrix_tangent",
                           "svd",
                           "svd_backward",
                           "svdvals",
                           "singular",
                           "singular_backward",
                           "singular_result",
                           "decompose_rectangles",
                           "singular_of",
                           "singular_of_backward",
                           "pinv",
                           "low_rank",
                           "soft_threshold",
                           "procrustes_factor",
                           "procrustes_backward",
                           "procrustes",
                           "special_procrustes",
                           "nearest_rotation",
                           "polar",
                           "polar_positive",
                           "polar_positive_backward",
                           "nuclear_norm",
                           "positive_solve",
                           "kabsch",
                           "rigid_motion",
                           "without_derivative_where",
                           "with_derivatives_of"})
    m.impl(name, CppFunction::makeFromBoxedFunction<&map_as_matrices>());
  for (const char* name :
       {"moments", "cross_moments", "affine", "whiten_forward", "whiten_backward"})
    m.impl(name, CppFunction::makeFromBoxedFunction<&map_as_groups>());
}

}  // namespace keel::ops
