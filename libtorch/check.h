#pragma once

// Argument checks. Each message names the operator, what it expected and what it got.

#include <string_view>

#include "keel/error.h"
#include "keel/spectral.h"
#include "types.h"

namespace keel::ops {

/// "(4, 3)"
std::string shape_of(const Tensor& tensor);

/// "float32", as in Python and in what these messages expect. LibTorch says "Float".
const char* name_of(at::ScalarType type);

void check_dense(const char* operation, const Tensor& tensor);

/// The numbers that an operation takes.
enum class Numbers : std::uint8_t { real, real_or_complex };

/// A defined, dense, floating-point (..., n, n) tensor on a device keel has kernels for.
void check_matrices(const char* operation, const Tensor& matrices, Numbers numbers = Numbers::real);

/// The same for matrices of any shape (..., m, n).
void check_rectangles(const char* operation, const Tensor& matrices,
                      Numbers numbers = Numbers::real);

/// `tensor` is on the device of `like`.
void check_place(const char* operation, const char* name, const Tensor& tensor, const Tensor& like);

/// `tensor` is one number of that type on the device of `like`.
void check_one_number(const char* operation, const char* name, const Tensor& tensor,
                      at::ScalarType type, const Tensor& like);

/// `tensor` is undefined, or has the shape, type and device of `like`.
void check_like(const char* operation, const char* name, const Tensor& tensor, const Tensor& like);

/// `values` is undefined, or has one real number per eigenvector, in the precision and on the device of `vectors`.
void check_values(const char* operation, const char* name, const Tensor& values,
                  const Tensor& vectors);

/// `rank` has one int64 per matrix, on the device of `vectors`.
void check_rank(const char* operation, const Tensor& rank, const Tensor& vectors);

/// A defined, dense, floating-point (N, C, *) tensor on a device keel has kernels for, with C divisible by `groups`.
void check_activations(const char* operation, const char* name, const Tensor& tensor,
                       std::int64_t groups);

/// `tensor` is undefined, or has one floating-point number per channel of `activations`, on their device.
void check_channels(const char* operation, const char* name, const Tensor& tensor,
                    const Tensor& activations);

/// `matrices` is a floating-point (G, d, d) tensor on the device of `activations`, which have G * d channels.
void check_group_matrices(const char* operation, const char* name, const Tensor& matrices,
                          const Tensor& activations);

/// `tensor` has the type of `matrices`, float32 or float64, and is on their device.
void check_statistics(const char* operation, const char* name, const Tensor& tensor,
                      const Tensor& matrices);

/// The policy that `rank` says, if it is one for these matrices: for complex ones not by Rayleigh quotients.
RankPolicy policy_for(const char* operation, StringView rank, const Tensor& matrices);

/// Runs `call` and turns a keel::Error into LibTorch's ValueError with the operator's name.
template <typename Call>
auto with_torch_errors(const char* operation, Call&& call) {
  try {
    return call();
  } catch (const keel::Error& error) {
    TORCH_CHECK_VALUE(false, operation, ": ", error.what());
  }
}

/// Parses `text` with one of the core's readers, e.g. parsed(gradient_rule, kEigh, rule). A bad text is a ValueError.
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
