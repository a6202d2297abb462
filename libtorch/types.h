#pragma once

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <complex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace keel::ops {

using at::Tensor;

// LibTorch moved from its own optional and string_view to std's. These aliases work with both.
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

/// a + b, where an undefined tensor counts as zero.
inline Tensor plus(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a + b : a;
}

/// The type the core computes in.
inline at::ScalarType compute_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

template <typename T>
struct CoreTypeOf {
  using type = T;
};
template <typename T>
struct CoreTypeOf<c10::complex<T>> {
  using type = std::complex<T>;
};
/// The core's counterpart of LibTorch's element type.
template <typename T>
using CoreType = typename CoreTypeOf<T>::type;

/// The type of a matrix's eigenvalues and singular values.
inline at::ScalarType type_of_values(const Tensor& matrix) {
  return c10::toRealValueType(matrix.scalar_type());
}

inline Tensor in_compute_type(const Tensor& tensor) {
  return tensor.defined() ? tensor.to(compute_type(tensor.scalar_type())) : tensor;
}

/// Disables autocast in its scope: products in half precision would lose the digits that the formulas need.
struct WithoutAutocast {
  const c10::impl::ExcludeDispatchKeyGuard keys{c10::autocast_dispatch_keyset};
};

/// The tuple that an operator with several results returns.
template <std::size_t count>
using Tensors = decltype(std::tuple_cat(std::array<Tensor, count>()));

/// A string as a template argument.
template <std::size_t size>
struct OperatorName {
  char letters[size];
  consteval OperatorName(const char (&text)[size]) { std::copy_n(text, size, letters); }
};

template <OperatorName name, typename Signature>
struct Operator;

/// A registered operator as a function. LibTorch's dispatcher picks the autograd, device or meta kernel.
template <OperatorName name, typename Result, typename... Arguments>
struct Operator<name, Result(Arguments...)> {
  Result operator()(Arguments... arguments) const {
    static const auto op =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow(("keel::" + std::string(name.letters)).c_str(), "")
            .template typed<Result(Arguments...)>();
    return op.call(arguments...);
  }

  /// Calls the kernels below the autograd dispatch key, which record no graph.
  Result below_autograd(Arguments... arguments) const {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return (*this)(arguments...);
  }
};

/// Registers an operator's kernels: one for autograd, and one for CPU, CUDA and meta tensors. For meta tensors, which have
/// shapes but no data, it only allocates. Their sizes may be symbolic, so that size() and numel() throw.
#define KEEL_OPERATOR(name, kernel, ...)                      \
  TORCH_LIBRARY_IMPL(keel, CPU, m) { m.impl(name, kernel); }  \
  TORCH_LIBRARY_IMPL(keel, CUDA, m) { m.impl(name, kernel); } \
  TORCH_LIBRARY_IMPL(keel, Meta, m) { m.impl(name, kernel); } \
  TORCH_LIBRARY_IMPL(keel, Autograd, m) { m.impl(name, __VA_ARGS__); }

}  // namespace keel::ops
