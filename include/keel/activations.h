#pragma once

// Views of (N, C, *) activations, which the layers' stages read and write.

#include <cstdint>

namespace keel {

/// IEEE binary16 as stored. Arithmetic is done in float.
struct Half {
  std::uint16_t bits;
};
/// The upper half of a float. Arithmetic is done in float.
struct BFloat16 {
  std::uint16_t bits;
};
float to_float(Half x);
float to_float(BFloat16 x);
/// Rounds to nearest, ties to even.
Half to_half(float x);
BFloat16 to_bfloat16(float x);

/// The type in which elements of type T are summed. Means, matrices and shifts have this type too.
template <typename T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <typename T>
struct AccumulatorOf<const T> : AccumulatorOf<T> {};
template <typename T>
using Accumulator = typename AccumulatorOf<T>::type;

enum class Order {
  contiguous,     ///< in memory (N, C, S)
  channels_last,  ///< in memory (N, S, C)
};

/// Activations of shape (N, C, *), densely packed, with S = prod(*). A sample is one of the N * S
/// columns of C channels. The channels form `groups` consecutive groups of group_size() channels
/// each; groups are independent of each other. This is a view: it owns nothing. T is float, double,
/// Half or BFloat16.
template <typename T>
struct Activations {
  T* data = nullptr;
  std::int64_t batch = 0;      ///< N
  std::int64_t channels = 0;   ///< C
  std::int64_t positions = 1;  ///< S
  std::int64_t groups = 1;     ///< divides C
  Order order = Order::contiguous;
  /// If not null: an array of the same shape and order. Where it is zero or negative, the element
  /// of `data` is read as zero. ReLU's output is the gate of its own gradient. Only for stages
  /// whose contract allows a gate.
  const T* gate = nullptr;
  /// If not null: an array of the same shape and order that is added to what is written to `data`.
  /// Only for stages whose contract allows a residual.
  const T* residual = nullptr;
  /// Whether to write max(0, x) instead of x, after adding the residual. NaN stays NaN. Only for
  /// stages whose contract allows it.
  bool rectified = false;

  std::int64_t samples() const { return batch * positions; }
  std::int64_t group_size() const { return groups > 0 ? channels / groups : 0; }
  std::int64_t index(std::int64_t sample, std::int64_t channel) const {
    if (order == Order::channels_last) return sample * channels + channel;
    return (sample / positions * channels + channel) * positions + sample % positions;
  }
  explicit operator bool() const { return data != nullptr; }
  operator Activations<const T>() const {
    return {data, batch, channels, positions, groups, order, gate, residual, rectified};
  }

  /// A copy of this view with the gate `by`.
  Activations gated(const T* by) const {
    Activations result = *this;
    result.gate = by;
    return result;
  }
  /// A copy of this view with the residual `these`.
  Activations plus(const T* these) const {
    Activations result = *this;
    result.residual = these;
    return result;
  }
  /// A copy of this view that applies ReLU to what is written.
  Activations with_relu(bool on = true) const {
    Activations result = *this;
    result.rectified = on;
    return result;
  }
};

}  // namespace keel
