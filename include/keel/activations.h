#pragma once

// What the layers' stages read and write: (N, C, *) activations, plainly described.

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
/// Rounded to the nearest, ties to even.
Half to_half(float x);
BFloat16 to_bfloat16(float x);

/// The type that elements of type T are summed in, and that means, matrices and shifts have.
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

/// Activations of shape (N, C, *) without gaps, S = prod(*). The samples are the N * S columns of
/// C channels; the channels fall into `groups` runs of group_size() that are treated apart. A view:
/// it owns nothing. T is float, double, Half or BFloat16.
template <typename T>
struct Activations {
  T* data = nullptr;
  std::int64_t batch = 0;      ///< N
  std::int64_t channels = 0;   ///< C
  std::int64_t positions = 1;  ///< S
  std::int64_t groups = 1;     ///< divides C
  Order order = Order::contiguous;
  /// Numbers of the same shape and order: where one of them is zero or less, what is read here is zero. What ReLU
  /// wrote is the gate of its own gradient. Null: no gate. For stages that say they take one.
  const T* gate = nullptr;
  /// Numbers of the same shape and order that are added to what is written here. Null: none. For stages that say they
  /// do it.
  const T* residual = nullptr;
  /// What is written here is max(0, it), the residual added, and NaN is NaN. For stages that say they do it.
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

  /// The same numbers behind a gate.
  Activations gated(const T* by) const {
    Activations result = *this;
    result.gate = by;
    return result;
  }
  /// The same place, for what is written and these.
  Activations plus(const T* these) const {
    Activations result = *this;
    result.residual = these;
    return result;
  }
  /// The same place, for max(0, what is written).
  Activations with_relu(bool on = true) const {
    Activations result = *this;
    result.rectified = on;
    return result;
  }
};

}  // namespace keel
