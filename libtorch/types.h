#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <utility>

namespace keel::ops {

using at::Tensor;

// LibTorch moved from its own optional and string_view to std's; these follow whichever it uses.
using StringView = decltype(std::declval<const c10::IValue&>().toStringView());
template <typename T>
using Optional = decltype(std::declval<const c10::IValue&>().toOptional<T>());

inline std::string text(StringView view) { return std::string(view.data(), view.size()); }

inline Optional<double> to_torch(const std::optional<double>& value) {
  return value ? Optional<double>(*value) : Optional<double>();
}

inline std::optional<double> to_std(const Optional<double>& value) {
  return value.has_value() ? std::optional<double>(*value) : std::nullopt;
}

inline Optional<Tensor> if_defined(const Tensor& tensor) {
  return tensor.defined() ? Optional<Tensor>(tensor) : Optional<Tensor>();
}

inline Tensor or_undefined(const Optional<Tensor>& tensor) {
  return tensor.has_value() ? *tensor : Tensor();
}

/// The type the core computes in.
inline at::ScalarType compute_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

inline Tensor in_compute_type(const Tensor& tensor) {
  return tensor.defined() ? tensor.to(compute_type(tensor.scalar_type())) : tensor;
}

/// The operator `name` as registered, with its C++ signature.
template <typename Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// Registers an operator's kernels: the one of both devices, the one of shapes alone, and autograd's.
#define KEEL_OPERATOR(name, kernel, shapes, ...)              \
  TORCH_LIBRARY_IMPL(keel, CPU, m) { m.impl(name, kernel); }  \
  TORCH_LIBRARY_IMPL(keel, CUDA, m) { m.impl(name, kernel); } \
  TORCH_LIBRARY_IMPL(keel, Meta, m) { m.impl(name, shapes); } \
  TORCH_LIBRARY_IMPL(keel, Autograd, m) { m.impl(name, __VA_ARGS__); }

}  // namespace keel::ops
