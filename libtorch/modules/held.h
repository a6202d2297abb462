#pragma once

// What an autograd node remembers that is no tensor, number or string.

#include <ATen/core/ivalue.h>
#include <torch/custom_class.h>

#include <utility>

namespace keel::nn {

template <typename T>
struct Held : torch::CustomClassHolder {
  T value;
  explicit Held(T v) : value(std::move(v)) {}
};

template <typename T>
c10::IValue hold(T value) {
  return c10::IValue::make_capsule(c10::make_intrusive<Held<T>>(std::move(value)));
}

/// What hold() was given. It lives as long as the IValue.
template <typename T>
const T& held(const c10::IValue& capsule) {
  return static_cast<const Held<T>&>(*capsule.toCapsule()).value;
}

}  // namespace keel::nn
