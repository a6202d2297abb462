#include "keel/layer_matrix.h"

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/torch/layer_matrix.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char* kLayerMatrix = "keel::layer_matrix";

Tensors<4> layer_matrix_kernel(const Tensor& covariance, StringView map, StringView rule) {
  check_matrices(kLayerMatrix, covariance);
  const LayerMap chosen = parsed(layer_map, kLayerMatrix, map);
  parsed(spectral_rule, kLayerMatrix, rule);  // report a bad rule now, not in backward
  if (covariance.is_meta())
    return {empty_matrices(covariance), empty_values(covariance), empty_matrices(covariance),
            empty_rank(covariance)};
  const auto type = covariance.scalar_type();
  const Tensor input = readable(in_compute_type(covariance));
  const Tensor result = empty_matrices(input), values = empty_values(input);
  const Tensor vectors = empty_matrices(input), found = empty_rank(input);
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), kLayerMatrix, [&] {
    const LayerMatrixState<scalar_t> state{values.data_ptr<scalar_t>(), matrices<scalar_t>(vectors),
                                           found.data_ptr<std::int64_t>()};
    on_device_of(input, KEEL_STAGE(layer_matrix<scalar_t>), chosen, matrices<const scalar_t>(input),
                 matrices<scalar_t>(result), state);
  });
  return {result.to(type), values.to(type), vectors.to(type), found};
}

Tensors<4> layer_matrix_autograd(const Tensor& covariance, StringView map, StringView rule) {
  check_matrices(kLayerMatrix, covariance);
  if (!needs_graph({covariance})) return layer_matrix.below_autograd(covariance, map, rule);
  const Tensor c = in_compute_type(covariance);
  const auto [result, values, vectors, found] = layer_matrix.below_autograd(c, map, rule);
  record(
      {.name = kLayerMatrix,
       .inputs = {c},
       .outputs = {result},
       .saved = {c, values, vectors, found},
       .backward = [m = text(map), r = text(rule)](const GraphNode::Pass& pass) -> variable_list {
         const variable_list& s = pass.saved;
         return {layer_matrix_backward(pass.grads[0], s[0], s[1], s[2], s[3], m, r)};
       },
       .forward = [&]() -> variable_list {
         if (is_twice_differentiable(map, rule))
           return {spectral_backward(tangent_of(c), primal_of(c), raised_values(values, map),
                                     vectors, found, "inv_sqrt", "full", rule)};
         return {layer_matrix_tangent(tangent_of(c), primal_of(c), result, values, vectors, found,
                                      map, rule)};
       }});
  const auto type = covariance.scalar_type();
  return {result.to(type), values.to(type), vectors.to(type), found};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "layer_matrix(Tensor covariance, str map, str rule='exact')"
      " -> (Tensor matrix, Tensor values, Tensor vectors, Tensor rank)");
}
KEEL_OPERATOR("layer_matrix", &layer_matrix_kernel, &layer_matrix_autograd)

}  // namespace keel::ops

namespace keel {

LayerMatrix layer_matrix(const torch::Tensor& covariance, const LayerMap& map,
                         const SpectralRule& rule) {
  ops::check_matrices("keel::layer_matrix", covariance);
  auto [result, values, vectors, rank] =
      ops::layer_matrix(covariance, to_string(map), to_string(rule));
  return {std::move(result), std::move(values), std::move(vectors), std::move(rank)};
}

}  // namespace keel
