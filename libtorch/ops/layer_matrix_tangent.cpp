#include "autograd.h"
#include "check.h"
#include "gradient_rule_formula.h"
#include "keel/layer_matrix.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char* kLayerMatrixTangent = "keel::layer_matrix_tangent";
constexpr char kNoSecondTangent[] =
    "keel::layer_matrix: no second derivative in forward mode; build the map from keel::spectral "
    "or keel::eigh, which have one";

/// A covariance, its tangent `along`, and the results of forward.
struct TangentInputs {
  Tensor along, covariance, layer_matrix, values, vectors, rank;
  SpectralRule rule;

  /// The tangent of a function of M over the kept eigenvalues. Each pair has one factor, so the map is its own adjoint.
  Tensor of_function(const char* function, const Tensor& matrix_along) const {
    return spectral_backward(matrix_along, covariance, values, vectors, rank, function, "full",
                             to_string(rule));
  }
};

Tensor tangent_of_map(const Zca&, const TangentInputs& m) {
  return m.of_function("inv_sqrt", m.along);
}

Tensor tangent_of_map(const PcaDenoising& map, const TangentInputs& m) {
  const Tensor lower = m.covariance.tril(), c = lower + m.covariance.tril(-1).mT();
  const Tensor scale = (c.diagonal(0, -2, -1) + map.eps).rsqrt();
  const Tensor scale_along = -scale.pow(3) * m.along.diagonal(0, -2, -1) / 2;
  const auto between = [&](const Tensor& left, const Tensor& middle, const Tensor& right) {
    return left.unsqueeze(-1) * middle * right.unsqueeze(-2);
  };
  const Tensor bent = between(scale_along, c, scale);
  const Tensor projector = m.layer_matrix / scale.unsqueeze(-2);
  return m.of_function("one", between(scale, m.along, scale) + bent + bent.mT()) *
             scale.unsqueeze(-2) +
         projector * scale_along.unsqueeze(-2);
}

Tensor tangent_of_map(const PcaWhitening&, const TangentInputs& m) {
  // The map depends on the basis inside an eigenspace, so no rule is exact, and Exact means Masked.
  const GradientRule rule = std::visit(
      [](const auto& chosen) -> GradientRule {
        if constexpr (std::is_same_v<std::decay_t<decltype(chosen)>, Exact>)
          return Masked{};
        else
          return chosen;
      },
      m.rule);
  const auto [by_values, by_vectors] = gradient_rule_tangents(rule, m.values, m.vectors, m.along);
  const Tensor kept = at::arange(m.values.size(-1), m.rank.options()) < m.rank.unsqueeze(-1);
  const Tensor length = at::where(kept, m.values.rsqrt(), at::zeros_like(m.values));
  return (-length.pow(3) * by_values / 2).unsqueeze(-1) * m.vectors.mT() +
         length.unsqueeze(-1) * by_vectors.mT();
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
      "layer_matrix_tangent(Tensor along, Tensor covariance, Tensor layer_matrix, Tensor values,"
      " Tensor vectors, Tensor rank, str map, str rule='exact') -> Tensor");
}
KEEL_OPERATOR("layer_matrix_tangent", &layer_matrix_tangent_kernel,
              without_derivative<layer_matrix_tangent, kNoSecondTangent>)

}  // namespace keel::ops
