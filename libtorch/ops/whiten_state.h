#pragma once

// Shared by whiten.cpp and whiten_backward.cpp.

#include "activation_tensors.h"
#include "keel/torch/whiten.h"
#include "keel/whiten.h"
#include "matrix_tensors.h"

namespace keel::ops {

/// The layer's state as tensors: mean (C), covariance and layer_matrix (G, d, d), values (G, d), vectors (G, d, d)
/// and rank (G).
struct StateTensors {
  Tensor mean, covariance, layer_matrix, values, vectors, rank;

  static StateTensors empty(const Tensor& input, std::int64_t groups) {
    const Tensor covariance = empty_group_matrices(input, groups);
    return {empty_channels(input),      covariance,
            empty_matrices(covariance), empty_values(covariance),
            empty_matrices(covariance), empty_rank(covariance)};
  }

  /// The core's view. The tensors must be readable in place.
  template <typename A>
  WhitenState<A> view() const {
    using Element = std::remove_const_t<A>;
    return {mean.data_ptr<Element>(),
            matrices<A>(covariance),
            matrices<A>(layer_matrix),
            {values.data_ptr<Element>(), matrices<A>(vectors), rank.data_ptr<std::int64_t>()}};
  }
};

/// Allocates the activations into `tensor` when the core asks for them.
template <typename T>
Destination<T> made_on_demand(Tensor& tensor, const Tensor& like, std::int64_t groups, Order order,
                              bool relu = false, const Tensor& residual = {}) {
  return [&tensor, &like, groups, order, relu, residual] {
    tensor = empty_activations(like, order);
    return activations<T>(tensor, groups, order).plus(core_data<T>(residual)).with_relu(relu);
  };
}

}  // namespace keel::ops
