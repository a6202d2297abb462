#pragma once

// Converts (N, C, *) tensors to the core's views of activations, and allocates outputs for device and meta kernels.

#include "keel/activations.h"
#include "types.h"

namespace keel::ops {

template <>
struct CoreTypeOf<at::Half> {
  using type = Half;
};
template <>
struct CoreTypeOf<at::BFloat16> {
  using type = BFloat16;
};
/// The memory order to read a tensor in. A tensor in neither order counts as contiguous, and in_order() copies it.
inline Order order_of(const Tensor& tensor) {
  return !tensor.is_contiguous() && tensor.movedim(1, -1).is_contiguous() ? Order::channels_last
                                                                          : Order::contiguous;
}

/// `tensor` in that memory order, without a copy if it already is.
inline Tensor in_order(const Tensor& tensor, Order order) {
  if (order == Order::contiguous) return tensor.contiguous();
  return tensor.movedim(1, -1).contiguous().movedim(-1, 1);
}

inline Tensor in_order_if_any(const Optional<Tensor>& tensor, Order order) {
  const Tensor given = or_undefined(tensor);
  return given.defined() ? in_order(given, order) : given;
}

/// The tensor's data, or null if it is undefined.
template <typename T>
const T* core_data(const Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.data_ptr()) : nullptr;
}

inline Tensor empty_activations(const Tensor& like, Order order) {
  if (order == Order::contiguous) return like.new_empty_symint(like.sym_sizes());
  return like.new_empty_symint(like.movedim(1, -1).sym_sizes()).movedim(-1, 1);
}

/// The core's view of a tensor that is already in that memory order.
template <typename T>
Activations<T> activations(const Tensor& tensor, std::int64_t groups, Order order) {
  const std::int64_t batch = tensor.size(0), channels = tensor.size(1);
  std::int64_t positions = 1;
  for (std::int64_t d = 2; d < tensor.dim(); ++d) positions *= tensor.size(d);
  return {static_cast<T*>(tensor.data_ptr()), batch, channels, positions, groups, order};
}

/// The options of statistics (means, matrices, shifts) of these activations.
inline at::TensorOptions statistics_options(const Tensor& activations) {
  return activations.options().dtype(compute_type(activations.scalar_type()));
}

inline Tensor in_statistics_type(const Tensor& tensor, const Tensor& activations) {
  return tensor.defined() ? tensor.to(compute_type(activations.scalar_type())) : tensor;
}

/// One number per channel, contiguous and in the statistics' type. May be undefined.
inline Tensor channel_statistics(const Optional<Tensor>& numbers, const Tensor& activations) {
  const Tensor given = in_statistics_type(or_undefined(numbers), activations);
  return given.defined() ? given.contiguous() : given;
}

/// Broadcasts one number per channel (C) to the shape and type of the activations.
inline Tensor expand_channels(const Tensor& activations, const Tensor& numbers) {
  auto shape = std::vector<std::int64_t>(std::size_t(activations.dim()), 1);
  shape[1] = -1;
  return numbers.reshape(shape).expand_as(activations).to(activations.scalar_type());
}

inline Tensor empty_channels(const Tensor& activations) {
  return activations.new_empty_symint({activations.sym_size(1)}, statistics_options(activations));
}

inline Tensor empty_group_matrices(const Tensor& activations, std::int64_t groups) {
  const auto d = activations.sym_size(1) / groups;
  return activations.new_empty_symint({groups, d, d}, statistics_options(activations));
}

/// The shift that is subtracted before summing, as contiguous float64. May be undefined.
inline Tensor as_shift(const Optional<Tensor>& shift) {
  const Tensor given = or_undefined(shift);
  return given.defined() ? given.to(at::kDouble).contiguous() : given;
}

/// `tensor`, set to zero where `output` <= 0. With output = tensor this is ReLU; with output = ReLU's output it is
/// ReLU's backward. The CPU path avoids threshold_backward, which lacks kernels for some types there.
inline Tensor relu_mask(const Tensor& tensor, const Tensor& output) {
  if (tensor.is_cuda()) return at::threshold_backward(tensor, output, /*threshold=*/0);
  return at::where(output <= 0, at::zeros({}, tensor.options()), tensor);
}

/// Adds the residual, if defined, and then applies ReLU, if asked for.
inline Tensor add_residual_and_relu(Tensor tensor, bool relu, const Tensor& residual) {
  if (residual.defined()) tensor = tensor + residual;
  return relu ? relu_mask(tensor, tensor) : tensor;
}

/// matrix^T vector for each group: (G, d, d) and (C) give (C). Avoids matmul because a multithreaded BLAS leaves its
/// threads spinning on the cores that the next pass needs.
inline Tensor transposed_times(const Tensor& matrix, const Tensor& vector) {
  return (matrix * vector.reshape_symint({matrix.sym_size(0), -1, 1})).sum(-2).reshape({-1});
}

/// The number of samples, N * prod(*).
inline std::int64_t samples_of(const Tensor& activations) {
  auto samples = activations.sym_size(0);
  for (std::int64_t d = 2; d < activations.dim(); ++d) samples = samples * activations.sym_size(d);
  return samples.guard_int(__FILE__, __LINE__);
}

}  // namespace keel::ops
