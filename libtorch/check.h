#pragma once

// Validators. Each message names the operator, what was expected and what came.

#include <string_view>

#include "keel/error.h"
#include "types.h"

namespace keel::ops {

/// "(4, 3)"
std::string shape_of(const Tensor& tensor);

/// A defined, dense, floating (..., n, n) tensor on a device keel has kernels for.
void check_matrices(const char* operation, const Tensor& matrices);

/// The same of any shape: (..., m, n).
void check_rectangles(const char* operation, const Tensor& matrices);

/// `tensor` lies where `like` does.
void check_place(const char* operation, const char* name, const Tensor& tensor, const Tensor& like);

/// `tensor` is one number of that type and lies where `like` does.
void check_one_number(const char* operation, const char* name, const Tensor& tensor,
                      at::ScalarType type, const Tensor& like);

/// `tensor` has the shape, type and device of `like`. Undefined tensors pass.
void check_like(const char* operation, const char* name, const Tensor& tensor, const Tensor& like);

/// `values` holds one number for each eigenvector of `vectors`, in type and on device alike.
void check_values(const char* operation, const char* name, const Tensor& values,
                  const Tensor& vectors);

/// `rank` holds one whole number per matrix of `vectors`, on their device.
void check_rank(const char* operation, const Tensor& rank, const Tensor& vectors);

/// A defined, dense, floating (N, C, *) tensor with channels that fall into `groups` equal groups, on a
/// device keel has kernels for.
void check_activations(const char* operation, const char* name, const Tensor& tensor,
                       std::int64_t groups);

/// `tensor` is floating, holds one number per channel of `activations` and lies where they lie.
/// Undefined tensors pass.
void check_channels(const char* operation, const char* name, const Tensor& tensor,
                    const Tensor& activations);

/// `matrices` is a floating (G, d, d) tensor with G * d channels of `activations`.
void check_group_matrices(const char* operation, const char* name, const Tensor& matrices,
                          const Tensor& activations);

/// `tensor` has the type of `matrices`, float32 or float64, and lies where they lie.
void check_statistics(const char* operation, const char* name, const Tensor& tensor,
                      const Tensor& matrices);

/// Runs `call`; a keel::Error in it becomes LibTorch's ValueError under the operator's name.
template <typename Call>
auto with_torch_errors(const char* operation, Call&& call) {
  try {
    return call();
  } catch (const keel::Error& error) {
    TORCH_CHECK_VALUE(false, operation, ": ", error.what());
  }
}

/// What a text says, by one of the core's readers: parsed(gradient_rule, kEigh, rule).
template <typename Value>
Value parsed(Value (*reader)(std::string_view, std::string_view), const char* operation,
             StringView text) {
  try {
    return reader({text.data(), text.size()}, operation);
  } catch (const keel::Error& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace keel::ops
