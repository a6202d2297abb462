#pragma once

// Shared by the tests of layer_matrix on every device.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "keel/layer_matrix.h"
#include "support/batch.h"
#include "support/spectrum_zoo.h"

namespace keel::testing {

/// What the forward pass writes, poisoned until then.
template <typename T>
struct Mapped {
  Batch<T> result;
  std::vector<T> values;
  Batch<T> vectors;
  std::vector<std::int64_t> rank;

  Mapped(std::int64_t batch, std::int64_t n)
      : result(batch, n, T(-77)),
        values(std::size_t(batch * n), T(-77)),
        vectors(batch, n, T(-77)),
        rank(std::size_t(batch), -77) {}
  LayerMatrixState<T> state() { return {values.data(), vectors.view(), rank.data()}; }
};

inline Mapped<double> mapped_by_reference(const LayerMap& map, const Batch<double>& covariance) {
  Mapped<double> m(covariance.batch, covariance.n);
  reference::layer_matrix(map, covariance.view(), m.result.view(), m.state());
  return m;
}

/// The gradient of the reference at the state `m`.
template <typename T>
Batch<double> gradient_by_reference(const LayerMap& map, const SpectralRule& rule,
                                    const Batch<T>& covariance, const Mapped<T>& m,
                                    const Batch<T>& dL_dlayer_matrix) {
  Batch<double> out(covariance.batch, covariance.n);
  Mapped<double> state(covariance.batch, covariance.n);
  state.values = as<double>(m.values);
  state.vectors = as<double>(m.vectors);
  state.rank = m.rank;
  reference::layer_matrix_backward(map, rule, as<double>(covariance).view(), state.state(),
                                   as<double>(dL_dlayer_matrix).view(), out.view());
  return out;
}

inline const RankPolicy kLayerPolicies[] = {FullRank{}, LeadingCount{2}, LeadingEnergy{0.8},
                                            Algorithm1{}, Algorithm1{.energy = 0.8}};

inline std::vector<LayerMap> maps(const RankPolicy& rank) {
  return {Zca{1e-4, rank}, PcaDenoising{1e-4, rank}, PcaWhitening{1e-4, rank}};
}

/// Covariances with well-separated eigenvalues, whose correlations usually have them too.
inline Batch<double> spread_covariance(std::int64_t n) {
  if (n <= 9) return with_spectrum(spectrum(n, [](double i) { return 2 * std::pow(0.7, i); }), 3);
  return with_spectrum(spectrum(n, [&](double i) { return 0.5 + 2 * i / double(n); }), 3);
}

/// Not a covariance: two eigenvalues are below zero, so that a map raises them to its eps. The diagonal is positive.
inline Batch<double> beyond_positive(std::int64_t n) {
  std::vector<double> values = spectrum(n, [&](double i) { return 4 - 3 * i / double(n); });
  values[std::size_t(n - 2)] = -0.2;
  values[std::size_t(n - 1)] = -0.6;
  return with_spectrum(values, 3);
}

/// Three channels are constant, so that three eigenvalues are exactly 0.
inline Batch<double> with_dead_channels(std::int64_t n) {
  const Batch<double> live = spread_covariance(n - 3);
  const auto place = [](std::int64_t i) { return i < 2 ? 2 * i + 1 : i + 3; };
  Batch<double> covariance(1, n);
  for (std::int64_t i = 0; i < n - 3; ++i)
    for (std::int64_t j = 0; j < n - 3; ++j) covariance(0, place(i), place(j)) = live(0, i, j);
  return covariance;
}

/// Whether two eigenvalues of the first matrix are equal, one of them kept.
template <typename T>
bool values_meet(const Mapped<T>& m) {
  for (std::int64_t i = 0; i < m.rank[0] && i + 1 < m.result.n; ++i)
    if (m.values[std::size_t(i)] == m.values[std::size_t(i + 1)]) return true;
  return false;
}

/// How much rounding of the covariance is amplified in results that depend on eigenvectors. Equal eigenvalues count as
/// one.
template <typename T>
double amplification(const Mapped<T>& m, double eps = 1e-4) {
  double smallest = 1;
  for (std::size_t i = 1; i < m.values.size(); ++i)
    if (m.values[i] < m.values[i - 1])
      smallest = std::min(smallest, double(m.values[i - 1] - m.values[i]) / double(m.values[0]));
  const double least = std::max(double(m.values.back()), eps);
  return double(m.values.front()) / least + 1 / smallest;
}

}  // namespace keel::testing
