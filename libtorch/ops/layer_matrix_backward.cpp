#include "autograd.h"
#include "check.h"
#include "device.h"
#include "gradient_rule_formula.h"
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

Tensor raised_values(const Tensor& values, StringView map) {
  return values.clamp_min(std::visit([](const auto& chosen) { return chosen.eps; },
                                     parsed(layer_map, "keel::layer_matrix", map)));
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
    return spectral_backward(grad_layer_matrix, covariance, raised_values(values, map), vectors,
                             rank, "inv_sqrt", "full", rule);
  const Tensor result = layer_matrix_backward.below_autograd(grad_layer_matrix, covariance, values,
                                                             vectors, rank, map, rule);
  if (needs_graph({grad_layer_matrix, covariance}))
    record_without_derivative(no_second_derivative(map), {grad_layer_matrix, covariance}, {result});
  return result;
}

constexpr const char* kLayerMatrixTangent = "keel::layer_matrix_tangent";
constexpr char kNoSecondTangent[] =
    "keel::layer_matrix: no second derivative in forward mode; build the map from keel::spectral "
    "or keel::eigh, which have one";

/// A covariance, its tangent `along`, and the results of forward.
struct TangentInputs {
  Tensor along, covariance, layer_matrix, values, vectors, rank;
  SpectralRule rule;

  bool textbook() const { return std::holds_alternative<Analytic>(rule); }
  /// The eigenvalues as the rule sees them (core/formulas/pair_weight.h, weight_above).
  Tensor seen(double eps) const { return textbook() ? values : values.clamp_min(eps); }
};

Tensor tangent_of_map(const Zca& map, const TangentInputs& m) {
  // Each pair of eigenvalues has one factor, so the map is its own adjoint.
  return layer_matrix_backward(m.along, m.covariance, m.values, m.vectors, m.rank,
                               to_string(LayerMap(map)), to_string(m.rule));
}

Tensor tangent_of_map(const PcaDenoising& map, const TangentInputs& m) {
  const Tensor lower = m.covariance.tril(), c = lower + m.covariance.tril(-1).mT();
  const Tensor variance = c.diagonal(0, -2, -1) + map.eps;
  const Tensor scale = at::where(variance == 0, at::zeros_like(variance), variance.rsqrt());
  const Tensor scale_along = -scale.pow(3) * m.along.diagonal(0, -2, -1) / 2;
  const auto between = [&](const Tensor& left, const Tensor& middle, const Tensor& right) {
    return left.unsqueeze(-1) * middle * right.unsqueeze(-2);
  };
  const Tensor bent = between(scale_along, c, scale);
  const Tensor scales = scale.unsqueeze(-2).expand_as(m.layer_matrix);
  const Tensor projector = divide_where(scales != 0, m.layer_matrix, scales);
  const Tensor matrix_along = between(scale, m.along, scale) + bent + bent.mT();
  return spectral_backward(matrix_along, m.covariance, m.seen(map.eps), m.vectors, m.rank, "one",
                           "full", to_string(m.rule)) *
             scale.unsqueeze(-2) +
         projector * scale_along.unsqueeze(-2);
}

Tensor tangent_of_map(const PcaWhitening& map, const TangentInputs& m) {
  // The map depends on the basis inside an eigenspace, so no rule is exact, and Exact means Masked.
  const GradientRule rule = std::visit(
      [](const auto& chosen) -> GradientRule {
        if constexpr (std::is_same_v<std::decay_t<decltype(chosen)>, Exact>)
          return Masked{};
        else
          return chosen;
      },
      m.rule);
  const auto [by_values, by_vectors] =
      gradient_rule_tangents(rule, m.seen(map.eps), m.vectors, m.along);
  const Tensor kept = at::arange(m.values.size(-1), m.rank.options()) < m.rank.unsqueeze(-1);
  const Tensor none = at::zeros_like(m.values);
  const Tensor length = at::where(kept, m.values.clamp_min(map.eps).rsqrt(), none);
  const Tensor moves = m.textbook() ? at::where(m.values < map.eps, none, by_values) : by_values;
  // The tangents of dropped eigenvectors whose eigenvalues are equal may be NaN.
  const Tensor turns = at::where(kept.unsqueeze(-1), by_vectors.mT(), at::zeros_like(by_vectors));
  return (-length.pow(3) * moves / 2).unsqueeze(-1) * m.vectors.mT() + length.unsqueeze(-1) * turns;
}

TangentInputs checked_inputs(const Tensor& along, const Tensor& covariance,
                             const Tensor& layer_matrix, const Tensor& values,
                             const Tensor& vectors, const Tensor& rank, StringView rule) {
  check_matrices(kLayerMatrixTangent, covariance);
  check_like(kLayerMatrixTangent, "along", along, covariance);
  check_like(kLayerMatrixTangent, "layer_matrix", layer_matrix, covariance);
  check_like(kLayerMatrixTangent, "vectors", vectors, covariance);
  check_values(kLayerMatrixTangent, "values", values, vectors);
  check_rank(kLayerMatrixTangent, rank, vectors);
  return {along,
          covariance,
          layer_matrix,
          values,
          vectors,
          rank,
          parsed(spectral_rule, kLayerMatrixTangent, rule)};
}

Tensor layer_matrix_tangent_kernel(const Tensor& along, const Tensor& covariance,
                                   const Tensor& layer_matrix, const Tensor& values,
                                   const Tensor& vectors, const Tensor& rank, StringView map,
                                   StringView rule) {
  TangentInputs moving =
      checked_inputs(along, covariance, layer_matrix, values, vectors, rank, rule);
  const LayerMap chosen = parsed(layer_map, kLayerMatrixTangent, map);
  if (covariance.is_meta()) return empty_matrices(covariance);
  moving.along = (along + along.mT()) / 2;
  return std::visit([&](const auto& m) { return tangent_of_map(m, moving); }, chosen);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "layer_matrix_backward(Tensor grad_layer_matrix, Tensor covariance, Tensor values, Tensor "
      "vectors, Tensor rank, str map, str rule='exact') -> Tensor");
  m.def(
      "layer_matrix_tangent(Tensor along, Tensor covariance, Tensor layer_matrix, Tensor values,"
      " Tensor vectors, Tensor rank, str map, str rule='exact') -> Tensor");
}
KEEL_OPERATOR("layer_matrix_backward", &layer_matrix_backward_kernel,
              &layer_matrix_backward_autograd)
KEEL_OPERATOR("layer_matrix_tangent", &layer_matrix_tangent_kernel,
              without_derivative<layer_matrix_tangent, kNoSecondTangent>)

}  // namespace keel::ops
