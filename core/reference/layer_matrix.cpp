#include "keel/layer_matrix.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "dense.h"
#include "formulas/pair_weight.h"
#include "formulas/standard_factor.h"
#include "keel/eigh.h"
#include "layer_matrix_stages.h"
#include "spectral_check.h"

namespace keel::reference {

namespace {

using Kind = SpectralFunction::Kind;

Dense diagonal(const std::vector<double>& entries) {
  Dense d(std::int64_t(entries.size()));
  for (std::int64_t i = 0; i < d.n; ++i) d(i, i) = entries[std::size_t(i)];
  return d;
}

/// D of PCA denoising. The identity for the maps that do not standardise.
std::vector<double> standard(const PcaDenoising& map, const Dense& covariance) {
  std::vector<double> scale;
  for (std::int64_t i = 0; i < covariance.n; ++i)
    scale.push_back(standard_factor(covariance(i, i), map.eps));
  return scale;
}
std::vector<double> standard(const auto&, const Dense& covariance) {
  return std::vector<double>(std::size_t(covariance.n), 1.0);
}

void store(const Dense& a, double* target, std::int64_t stride) {
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.n; ++j) target[i * stride + j] = a(i, j);
}

Matrices<double> view(Dense& a) { return contiguous(a.entries.data(), 1, a.n); }
Matrices<const double> view(const Dense& a) { return contiguous(a.entries.data(), 1, a.n); }

/// The eigenvectors, eigenvalues and rank of one matrix, as forward left them.
struct Decomposition {
  double eps;
  std::vector<double> values;  ///< as eigh found them
  Dense vectors;
  std::int64_t rank;

  /// The values that the map uses: none is below eps. NaN stays.
  std::vector<double> raised_values() const {
    std::vector<double> result = values;
    for (double& value : result) value = raised(value, eps);
    return result;
  }

  Dense apply(Kind kind) const {
    Dense result(vectors.n);
    spectral({kind}, raised_values().data(), view(vectors), &rank, view(result));
    return result;
  }
  Dense backward(Kind kind, const SpectralRule& rule, const Dense& dL_dresult) const {
    Dense dL_dmatrix(vectors.n);
    spectral_backward_above(eps, {kind}, rule, values.data(), view(vectors), &rank,
                            view(dL_dresult), view(dL_dmatrix));
    return dL_dmatrix;
  }
  /// 1 / sqrt(value) of the kept eigenvalues, 0 for the dropped ones.
  Dense inverse_lengths() const {
    std::vector<double> lengths;
    for (std::int64_t i = 0; i < vectors.n; ++i)
      lengths.push_back(i < rank ? 1 / std::sqrt(raised(values[std::size_t(i)], eps)) : 0);
    return diagonal(lengths);
  }
};

Dense result_of(const Zca&, const Decomposition& e, const Dense&) {
  return e.apply(Kind::inv_sqrt);
}
Dense result_of(const PcaDenoising&, const Decomposition& e, const Dense& D) {
  return e.apply(Kind::one) * D;
}
Dense result_of(const PcaWhitening&, const Decomposition& e, const Dense&) {
  return e.inverse_lengths() * transpose(e.vectors);
}

Dense gradient_of(const Zca&, const SpectralRule& rule, const Decomposition& e, const Dense&,
                  const Dense& dS) {
  return e.backward(Kind::inv_sqrt, rule, dS);
}

Dense gradient_of(const PcaDenoising& map, const SpectralRule& rule, const Decomposition& e,
                  const Dense& covariance, const Dense& dS) {
  const std::vector<double> scale = standard(map, covariance);
  const Dense D = diagonal(scale), P = e.apply(Kind::one);
  const Dense dL_dM = e.backward(Kind::one, rule, dS * D);
  Dense gradient = D * dL_dM * D;
  for (std::int64_t i = 0; i < covariance.n; ++i) {
    double dL_dscale = 0;
    for (std::int64_t j = 0; j < covariance.n; ++j)
      dL_dscale += dS(j, i) * P(j, i) + 2 * dL_dM(i, j) * covariance(i, j) * scale[std::size_t(j)];
    gradient(i, i) -= dL_dscale * std::pow(scale[std::size_t(i)], 3) / 2;
  }
  return gradient;
}

Dense gradient_of(const PcaWhitening&, const SpectralRule& rule, const Decomposition& e,
                  const Dense&, const Dense& dS) {
  const GradientRule chosen = eigh_rule(rule);
  const Dense lengths = e.inverse_lengths(), dL_dvectors = transpose(dS) * lengths;
  std::vector<double> dL_dvalues;
  for (std::int64_t i = 0; i < dS.n; ++i) {
    double along = 0;
    for (std::int64_t j = 0; j < dS.n; ++j) along += dS(i, j) * e.vectors(j, i);
    const double slope =
        slope_above(e.eps, std::holds_alternative<Analytic>(chosen), e.values[std::size_t(i)]);
    dL_dvalues.push_back(-0.5 * along * slope * std::pow(lengths(i, i), 3));
  }
  Dense gradient(dS.n);
  eigh_backward_above(e.eps, &e.rank, chosen, e.values.data(), view(e.vectors), dL_dvalues.data(),
                      view(dL_dvectors), view(gradient));
  return gradient;
}

}  // namespace

void layer_matrix(const LayerMap& map, Matrices<const double> covariance, Matrices<double> result,
                  LayerMatrixState<double> state) {
  check_layer_matrix("keel::reference::layer_matrix", map, covariance, result, state);
  const std::int64_t n = covariance.n;
  for (std::int64_t b = 0; b < covariance.batch; ++b)
    std::visit(
        [&](const auto& m) {
          const Dense full = load_lower(covariance, b), D = diagonal(standard(m, full));
          Dense M = D * full * D;
          for (std::int64_t i = 0; i < n; ++i) M(i, i) += m.eps;
          Decomposition e{m.eps, std::vector<double>(std::size_t(n)), Dense(n), 0};
          eigh(view(M), e.values.data(), view(e.vectors), EighOrder::descending);
          spectral_rank(m.rank, view(M), e.raised_values().data(), view(e.vectors), &e.rank);
          store(result_of(m, e, D), result[b], result.row_stride);
          std::copy(e.values.begin(), e.values.end(), state.values + b * n);
          store(e.vectors, state.vectors[b], state.vectors.row_stride);
          state.rank[b] = e.rank;
        },
        map);
}

void layer_matrix_backward(const LayerMap& map, const SpectralRule& rule,
                           Matrices<const double> covariance, LayerMatrixState<const double> state,
                           Matrices<const double> dL_dlayer_matrix,
                           Matrices<double> dL_dcovariance) {
  check_layer_matrix_backward("keel::reference::layer_matrix_backward", map, rule, covariance,
                              state, dL_dlayer_matrix, dL_dcovariance);
  const std::int64_t n = covariance.n;
  for (std::int64_t b = 0; b < covariance.batch; ++b) {
    const Decomposition e{std::visit([](const auto& m) { return m.eps; }, map),
                          {state.values + b * n, state.values + (b + 1) * n},
                          load(state.vectors, b),
                          state.rank[b]};
    const Dense full = load_lower(covariance, b), dS = load(dL_dlayer_matrix, b);
    store_symmetric(
        std::visit([&](const auto& m) { return gradient_of(m, rule, e, full, dS); }, map),
        dL_dcovariance, b);
  }
}

}  // namespace keel::reference
