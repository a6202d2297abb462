#include "keel/layer_matrix.h"

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/torch/layer_matrix.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {

using LayerMatrixTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

LayerMatrixTensors layer_matrix(const Tensor& covariance, StringView map, StringView rule) {
  static const auto op = operator_named<decltype(layer_matrix)>("keel::layer_matrix");
  return op.call(covariance, map, rule);
}

namespace {

constexpr const char* kLayerMatrix = "keel::layer_matrix";

LayerMatrixTensors layer_matrix_kernel(const Tensor& covariance, StringView map, StringView rule) {
  check_matrices(kLayerMatrix, covariance);
  const LayerMap chosen = parsed(layer_map, kLayerMatrix, map);
  parsed(spectral_rule, kLayerMatrix, rule);  // a bad rule is an error now
  const auto type = covariance.scalar_type();
  const Tensor input = readable(in_compute_type(covariance));
  const Tensor result = empty_matrices(input), values = empty_values(input);
  const Tensor vectors = empty_matrices(input), found = empty_rank(input);
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), kLayerMatrix, [&] {
    const LayerMatrixState<scalar_t> state{values.data_ptr<scalar_t>(), matrices<scalar_t>(vectors),
                                           found.data_ptr<std::int64_t>()};
    on_device_of(input, KEEL_TWINS(layer_matrix<scalar_t>), chosen, matrices<const scalar_t>(input),
                 matrices<scalar_t>(result), state);
  });
  return {result.to(type), values.to(type), vectors.to(type), found};
}

LayerMatrixTensors layer_matrix_meta(const Tensor& covariance, StringView map, StringView rule) {
  check_matrices(kLayerMatrix, covariance);
  parsed(layer_map, kLayerMatrix, map);
  parsed(spectral_rule, kLayerMatrix, rule);
  return {empty_matrices(covariance), empty_values(covariance), empty_matrices(covariance),
          empty_rank(covariance)};
}

struct LayerMatrixNode : torch::autograd::Function<LayerMatrixNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& covariance,
                               const std::string& map, const std::string& rule) {
    const BelowAutograd below_autograd;
    auto [result, values, vectors, found] = layer_matrix(covariance, map, rule);
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable({values, vectors, found});
    ctx->saved_data["map"] = map;
    ctx->saved_data["rule"] = rule;
    ctx->save_for_backward({covariance, values, vectors, found});
    return {result, values, vectors, found};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list input_grads(3);
    if (!grads[0].defined()) return input_grads;
    const variable_list tensors = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    input_grads[0] = layer_matrix_backward(grads[0], tensors[0], tensors[1], tensors[2], tensors[3],
                                           data["map"].toStringRef(), data["rule"].toStringRef());
    return input_grads;
  }
};

LayerMatrixTensors layer_matrix_autograd(const Tensor& covariance, StringView map,
                                         StringView rule) {
  check_matrices(kLayerMatrix, covariance);
  if (!needs_graph({covariance})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return layer_matrix(covariance, map, rule);
  }
  const variable_list outputs =
      LayerMatrixNode::apply(in_compute_type(covariance), text(map), text(rule));
  const auto type = covariance.scalar_type();
  return {outputs[0].to(type), outputs[1].to(type), outputs[2].to(type), outputs[3]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "layer_matrix(Tensor covariance, str map, str rule='exact')"
      " -> (Tensor matrix, Tensor values, Tensor vectors, Tensor rank)");
}
KEEL_OPERATOR("layer_matrix", &layer_matrix_kernel, &layer_matrix_meta, &layer_matrix_autograd)

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
