#pragma once

#include "activation_kernels.h"
#include "scratch.h"

namespace keel::cpu {

template <typename T>
Columns<T> columns(const Activations<T>& x) {
  T* end = x.data + x.samples() * x.channels;
  if (x.order == Order::channels_last || x.positions == 1)
    return {x.data, end, x.samples() > 0 ? x.samples() : 1, 0, x.channels, 1};
  return {x.data, end, x.positions, x.channels * x.positions, 1, x.positions};
}

/// The columns of another array with the shape and order of x, such as a gate or residual. If
/// `numbers` is null, so is the result's data.
template <typename T, typename U>
Columns<const T> columns_of(const T* numbers, const Activations<U>& x) {
  if (numbers == nullptr) return {};
  return columns(
      Activations<const T>{numbers, x.batch, x.channels, x.positions, x.groups, x.order});
}

/// A copy of one number per channel (null: zeros), padded as the kernels require.
template <typename A>
class PerChannel {
 public:
  PerChannel(std::int64_t channels, const A* values) : data_(channels + kChannelPadding) {
    for (std::int64_t c = 0; c < channels + kChannelPadding; ++c)
      data_[c] = values != nullptr && c < channels ? values[c] : A(0);
  }
  A* data() const { return data_; }

 private:
  Scratch<A> data_;
};

inline std::int64_t pieces(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

}  // namespace keel::cpu
