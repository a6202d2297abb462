#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/layer_matrix.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {

bool is_twice_differentiable(StringView map, StringView rule) {
  const LayerMap chosen = parsed(layer_map, "keel::layer_matrix", map);
  const auto* const zca = std::get_if<Zca>(&chosen);
  return zca != nullptr && std::holds_alternative<FullRank>(zca->rank) &&
         std::holds_alternative<Exact>(parsed(spectral_rule, "keel::layer_matrix", rule));
}

namespace {

constexpr const char* kLayerMatrixBackward = "keel::layer_matrix_backward";

struct Chosen {
  LayerMap map;
  SpectralRule rule;
};

Chosen checked(const Tensor& grad_layer_matrix, const Tensor& covariance, const Tensor& values,
               const Tensor& vectors, const Tensor& rank, StringView map, StringView rule) {
  check_matrices(kLayerMatrixBackward, covariance);
  check_like(kLayerMatrixBackward, "grad_layer_matrix", grad_layer_matrix, covariance);
  check_like(kLayerMatrixBackward, "vectors", vectors, covariance);
  check_values(kLayerMatrixBackward, "values", values, vectors);
  check_rank(kLayerMatrixBackward, rank, vectors);
  return {parsed(layer_map, kLayerMatrixBackward, map),
          parsed(spectral_rule, kLayerMatrixBackward, rule)};
}

Tensor layer_matrix_backward_kernel(const Tensor& grad_layer_matrix, const Tensor& covariance,
                                    const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                    StringView map, StringView rule) {
  const Chosen chosen = checked(grad_layer_matrix, covariance, values, vectors, rank, map, rule);
  if (covariance.is_meta()) return empty_matrices(covariance);
  const Tensor dL_dlayer_matrix = readable(in_compute_type(grad_layer_matrix));
  const Tensor input = readable(in_compute_type(covariance));
  const Tensor l = in_compute_type(values).contiguous(), r = rank.contiguous();
  const Tensor v = readable(in_compute_type(vectors)), dL_dcovariance = empty_matrices(v);
  AT_DISPATCH_FLOATING_TYPES(v.scalar_type(), kLayerMatrixBackward, [&] {
    const LayerMatrixState<scalar_t> state{l.data_ptr<scalar_t>(), matrices<scalar_t>(v),
                                           r.data_ptr<std::int64_t>()};
    on_device_of(v, KEEL_STAGE(layer_matrix_backward<scalar_t>), chosen.map, chosen.rule,
                 matrices<const scalar_t>(input), state, matrices<const scalar_t>(dL_dlayer_matrix),
                 matrices<scalar_t>(dL_dcovariance));
  });
  return dL_dcovariance.to(covariance.scalar_type());
}

std::string no_second_derivative(StringView map) {
  return "keel::layer_matrix: no second derivative of " + text(map) +
         " under this rule; zca with rank full and rule exact has one, and maps built from "
         "keel::spectral or keel::eigh";
}

Tensor layer_matrix_backward_autograd(const Tensor& grad_layer_matrix, const Tensor& covariance,
                                      const Tensor& values, const Tensor& vectors,
                                      const Tensor& rank, StringView map, StringView rule) {
  // These maps are spectral functions, whose gradient can be differentiated again.
  if (needs_graph({grad_layer_matrix, covariance}) && is_twice_differentiable(map, rule))
    return spectral_backward(grad_layer_matrix, covariance, values, vectors, rank, "inv_sqrt",
                             "full", rule);
  const Tensor result = layer_matrix_backward.below_autograd(grad_layer_matrix, covariance, values,
                                                             vectors, rank, map, rule);
  if (needs_graph({grad_layer_matrix, covariance}))
    record_without_derivative(no_second_derivative(map), {grad_layer_matrix, covariance}, {result});
  return result;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "layer_matrix_backward(Tensor grad_layer_matrix, Tensor covariance, Tensor values, Tensor "
      "vectors, Tensor rank, str map, str rule='exact') -> Tensor");
}
KEEL_OPERATOR("layer_matrix_backward", &layer_matrix_backward_kernel,
              &layer_matrix_backward_autograd)

}  // namespace keel::ops
