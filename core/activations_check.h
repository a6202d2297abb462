#pragma once

// Argument checks for the stages that take activations.

#include <string>

#include "keel/activations.h"
#include "keel/moments.h"
#include "shape.h"

namespace keel {

template <typename T>
std::string shape(const Activations<T>& x) {
  return std::string("(") + text(x.batch) + ", " + text(x.channels) + ", " + text(x.positions) +
         ")" + (x.order == Order::channels_last ? " channels_last" : "") + " in " + text(x.groups) +
         " groups";
}

template <typename T>
bool holds_nothing(const Activations<T>& x) {
  return x.batch == 0 || x.channels == 0 || x.positions == 0;
}
template <typename T>
bool is_dense(const Activations<T>&) {
  return true;
}
template <typename T>
std::int64_t size_of(const Activations<T>& x) {
  return x.batch * x.channels * x.positions;
}

/// Only activations without elements may be null.
template <typename T>
void require_memory(const char* operation, const char* name, const Activations<T>& x) {
  if (x || holds_nothing(x)) return;
  throw Error(std::string(operation) + ": expected " + name + " " + shape(x) + ", got null");
}

template <typename T>
void require_valid(const char* operation, const char* name, const Activations<T>& x) {
  if (x.batch >= 0 && x.channels >= 0 && x.positions >= 0 && x.groups > 0 &&
      x.channels % x.groups == 0) {
    require_memory(operation, name, x);
    return;
  }
  throw Error(std::string(operation) + ": expected " + name +
              " (N, C, S) with groups that divide C, got " + shape(x));
}

/// For gradients that a stage reads: they may have a gate.
template <typename T>
void require_only_gated(const char* operation, const char* name, const Activations<T>& x) {
  if (x.residual == nullptr && !x.rectified) return;
  throw Error(std::string(operation) + ": expected " + name +
              " without a residual or ReLU, got one with " +
              (x.residual != nullptr ? "a residual" : "ReLU"));
}

/// For outputs that may have a residual and ReLU.
template <typename T>
void require_no_gate(const char* operation, const char* name, const Activations<T>& x) {
  if (x.gate == nullptr) return;
  throw Error(std::string(operation) + ": expected " + name + " without a gate, got one with it");
}

/// For activations that a stage reads or writes without a gate, residual or ReLU.
template <typename T>
void require_plain(const char* operation, const char* name, const Activations<T>& x) {
  if (x.gate == nullptr && x.residual == nullptr && !x.rectified) return;
  throw Error(std::string(operation) + ": expected " + name +
              " without a gate, residual or ReLU, got one with " +
              (x.gate != nullptr       ? "a gate"
               : x.residual != nullptr ? "a residual"
                                       : "ReLU"));
}

template <typename T, typename U>
void require_same_shape(const char* operation, const char* name, const Activations<T>& expected,
                        const Activations<U>& given) {
  if (given.batch == expected.batch && given.channels == expected.channels &&
      given.positions == expected.positions && given.groups == expected.groups &&
      given.order == expected.order) {
    require_memory(operation, name, given);
    return;
  }
  throw Error(std::string(operation) + ": expected " + name + " " + shape(expected) + ", got " +
              shape(given));
}

/// Requires one d x d matrix per group.
template <typename T, typename U>
void require_per_group(const char* operation, const char* name, const Activations<T>& x,
                       const Matrices<U>& given) {
  const Matrices<U> expected = contiguous<U>(nullptr, x.groups, x.group_size());
  const bool same = given.batch == expected.batch && given.n == expected.n;
  if (same && (given || holds_nothing(expected))) return;
  throw Error(std::string(operation) + ": expected " + name + " of shape " + shape(expected) +
              ", got " + (same ? "null" : shape(given)));
}

/// Argument checks of every backend of affine.
template <typename T, typename U, typename A>
void check_affine(const char* operation, const Matrices<A>& matrix, const Activations<T>& input,
                  const Activations<U>& output) {
  require_valid(operation, "input", input);
  require_same_shape(operation, "output", input, output);
  require_plain(operation, "input", input);
  require_no_gate(operation, "output", output);
  require_per_group(operation, "matrix", input, matrix);
  require_apart(operation, "output", output, "input", input);
}

template <typename T, typename U, typename A>
void check_affine_backward(const char* operation, const Matrices<A>& matrix,
                           const Activations<T>& dL_doutput, const Matrices<A>& dL_dcovariance,
                           const Activations<T>& input, const Activations<U>& dL_dinput) {
  require_valid(operation, "dL_doutput", dL_doutput);
  require_same_shape(operation, "dL_dinput", dL_doutput, dL_dinput);
  require_only_gated(operation, "dL_doutput", dL_doutput);
  require_plain(operation, "dL_dinput", dL_dinput);
  require_per_group(operation, "matrix", dL_doutput, matrix);
  require_apart(operation, "dL_dinput", dL_dinput, "dL_doutput", dL_doutput);
  if (!dL_dcovariance) return;
  require_same_shape(operation, "input", dL_doutput, input);
  require_plain(operation, "input", input);
  require_per_group(operation, "dL_dcovariance", dL_doutput, dL_dcovariance);
  require_apart(operation, "dL_dinput", dL_dinput, "input", input);
}

/// Argument checks of every backend of moments.
template <typename T, typename A>
void check_moments(const char* operation, const Activations<T>& input, const A* mean,
                   const Matrices<A>& covariance) {
  require_valid(operation, "input", input);
  require_plain(operation, "input", input);
  require_per_group(operation, "covariance", input, covariance);
  require_numbers(operation, "means", mean, input.channels);
}

/// Argument checks of both backends of partial_moments.
template <typename T>
void check_partial_moments(const char* operation, const Activations<T>& input, const double* sums) {
  require_valid(operation, "input", input);
  require_plain(operation, "input", input);
  if (input.channels > 0)
    require_numbers(operation, "sums", sums, partial_moments_size(input.channels, input.groups));
}

/// Argument checks of both backends of moments_from_partial.
template <typename A>
void check_moments_from_partial(const char* operation, const double* sums, const A* mean,
                                const Matrices<A>& covariance) {
  require_given(operation, "covariance", covariance);
  const std::int64_t channels = covariance.batch * covariance.n;
  if (channels > 0)
    require_numbers(operation, "sums", sums, partial_moments_size(channels, covariance.batch));
  require_numbers(operation, "means", mean, channels);
}

template <typename T, typename A>
void check_cross_moments(const char* operation, const Activations<T>& left,
                         const Activations<T>& right, const A* sums, const Matrices<A>& cross) {
  require_valid(operation, "left", left);
  require_same_shape(operation, "right", left, right);
  require_only_gated(operation, "left", left);
  require_plain(operation, "right", right);
  require_per_group(operation, "cross", left, cross);
  require_numbers(operation, "sums", sums, left.channels);
}

}  // namespace keel
