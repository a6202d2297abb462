#include "keel/layer_matrix.h"

#include <algorithm>
#include <cmath>

#include "formulas/pair_weight.h"
#include "formulas/standard_factor.h"
#include "instantiate.h"
#include "keel/eigh.h"
#include "layer_matrix_stages.h"
#include "scratch.h"
#include "spectral_check.h"

namespace keel::cpu {

namespace {

using Kind = SpectralFunction::Kind;

/// Calls body(b, i, j) for every entry of every matrix, matrices in parallel.
template <typename Body>
void for_each_entry(std::int64_t batch, std::int64_t n, const Executor& executor,
                    const Body& body) {
  executor(batch, [&](std::int64_t b) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) body(b, i, j);
  });
}

/// The factor that standardises channel i.
template <typename T>
T standard(Matrices<const T> covariance, std::int64_t b, std::int64_t i, double eps) {
  return standard_factor(covariance[b][i * covariance.row_stride + i], T(eps));
}

/// Computes M, its eigenvalues and vectors, and the rank. `scaled(b, i, j)` is the lower triangle
/// of M - eps I. Writes the eigenvalues that the map uses, none of them below eps, to `values`.
template <typename T, typename Scaled>
void decompose(double eps, const RankPolicy& policy, std::int64_t batch, std::int64_t n, T* values,
               const LayerMatrixState<T>& state, const Executor& executor, const Scaled& scaled) {
  Scratch<T> memory(batch * n * n);
  const auto M = contiguous<T>(memory, batch, n);
  for_each_entry(batch, n, executor, [&](std::int64_t b, std::int64_t i, std::int64_t j) {
    if (j <= i) M[b][i * n + j] = scaled(b, i, j) + (i == j ? T(eps) : T(0));
  });
  eigh<T>(M, state.values, state.vectors, EighOrder::descending, nullptr, executor);
  for (std::int64_t k = 0; k < batch * n; ++k) values[k] = raised(state.values[k], T(eps));
  spectral_rank<T>(policy, M, values, state.vectors, state.rank, executor);
}

template <typename T>
struct Forward {
  Matrices<const T> covariance;
  Matrices<T> result;
  LayerMatrixState<T> state;
  const Executor& executor;

  T entry(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return covariance[b][i * covariance.row_stride + j];
  }

  void operator()(const Zca& map) const {
    const Scratch<T> values(covariance.batch * covariance.n);
    decompose<T>(map.eps, map.rank, covariance.batch, covariance.n, values, state, executor,
                 [&](auto b, auto i, auto j) { return entry(b, i, j); });
    spectral<T>({Kind::inv_sqrt}, values, state.vectors, state.rank, result, executor);
  }

  void operator()(const PcaDenoising& map) const {
    const Scratch<T> values(covariance.batch * covariance.n);
    decompose<T>(map.eps, map.rank, covariance.batch, covariance.n, values, state, executor,
                 [&](auto b, auto i, auto j) {
                   return entry(b, i, j) * standard(covariance, b, i, map.eps) *
                          standard(covariance, b, j, map.eps);
                 });
    spectral<T>({Kind::one}, values, state.vectors, state.rank, result, executor);
    for_each_entry(result.batch, result.n, executor, [&](auto b, auto i, auto j) {
      result[b][i * result.row_stride + j] *= standard(covariance, b, j, map.eps);
    });
  }

  void operator()(const PcaWhitening& map) const {
    const Scratch<T> values(covariance.batch * covariance.n);
    decompose<T>(map.eps, map.rank, covariance.batch, covariance.n, values, state, executor,
                 [&](auto b, auto i, auto j) { return entry(b, i, j); });
    for_each_entry(result.batch, result.n, executor, [&](auto b, auto i, auto j) {
      const T length = std::sqrt(values[b * result.n + i]);
      // Multiplying by a NaN length keeps all rows of a bad group NaN, including the dropped ones.
      result[b][i * result.row_stride + j] =
          i < state.rank[b] ? state.vectors[b][j * state.vectors.row_stride + i] / length
                            : T(0) * length;
    });
  }
};

template <typename T>
struct Backward {
  const SpectralRule& rule;
  Matrices<const T> covariance;
  LayerMatrixState<const T> state;
  Matrices<const T> dL_dlayer_matrix;
  Matrices<T> dL_dcovariance;
  const Executor& executor;

  T dS(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return dL_dlayer_matrix[b][i * dL_dlayer_matrix.row_stride + j];
  }

  void operator()(const Zca& map) const {
    spectral_backward_above<T>(T(map.eps), {Kind::inv_sqrt}, rule, state.values, state.vectors,
                               state.rank, dL_dlayer_matrix, dL_dcovariance, executor);
  }

  void operator()(const PcaDenoising& map) const {
    const std::int64_t batch = covariance.batch, n = covariance.n;
    Scratch<T> first(batch * n * n), second(batch * n * n);
    const auto dL_dprojector = contiguous<T>(first, batch, n),
               projector = contiguous<T>(second, batch, n);
    for_each_entry(batch, n, executor, [&](auto b, auto i, auto j) {
      dL_dprojector[b][i * n + j] = dS(b, i, j) * standard(covariance, b, j, map.eps);
    });
    spectral<T>({Kind::one}, state.values, state.vectors, state.rank, projector, executor);
    spectral_backward_above<T>(T(map.eps), {Kind::one}, rule, state.values, state.vectors,
                               state.rank, dL_dprojector, dL_dcovariance,
                               executor);  // dL_dM, turned into dL_dcovariance below
    executor(batch, [&](std::int64_t b) {
      T* const G = dL_dcovariance[b];
      const std::int64_t stride = dL_dcovariance.row_stride;
      const auto lower = [&](std::int64_t i, std::int64_t j) {
        return covariance[b][std::max(i, j) * covariance.row_stride + std::min(i, j)];
      };
      Scratch<T> scale(n), dL_dscale(n);
      for (std::int64_t i = 0; i < n; ++i) scale[i] = standard(covariance, b, i, map.eps);
      for (std::int64_t i = 0; i < n; ++i) {
        dL_dscale[i] = 0;
        for (std::int64_t j = 0; j < n; ++j)
          dL_dscale[i] += dS(b, j, i) * projector[b][j * n + i] +
                          2 * G[i * stride + j] * lower(i, j) * scale[j];
      }
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < n; ++j) G[i * stride + j] *= scale[i] * scale[j];
        G[i * stride + i] -= dL_dscale[i] * scale[i] * scale[i] * scale[i] / 2;
      }
    });
  }

  void operator()(const PcaWhitening& map) const {
    const GradientRule chosen = eigh_rule(rule);
    const bool textbook = std::holds_alternative<Analytic>(chosen);
    const T eps = T(map.eps);
    const std::int64_t batch = covariance.batch, n = covariance.n;
    Scratch<T> first(batch * n), second(batch * n * n);
    T* const dL_dvalues = first;
    const auto dL_dvectors = contiguous<T>(second, batch, n);
    executor(batch, [&](std::int64_t b) {
      for (std::int64_t i = 0; i < n; ++i) {
        const T found = state.values[b * n + i], value = raised(found, eps);
        const bool kept = i < state.rank[b];
        const T factor = kept ? T(1) / std::sqrt(value) : T(0);
        T sum = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          sum += dS(b, i, j) * state.vectors[b][j * state.vectors.row_stride + i];
          dL_dvectors[b][j * n + i] = dS(b, i, j) * factor;
        }
        // Dropped values may be 0.
        dL_dvalues[b * n + i] =
            -sum * slope_above(eps, textbook, found) * factor / (kept ? 2 * value : T(1));
      }
    });
    eigh_backward_above<T>(eps, state.rank, chosen, state.values, state.vectors, dL_dvalues,
                           dL_dvectors, dL_dcovariance, executor);
  }
};

}  // namespace

template <typename T>
void layer_matrix(const LayerMap& map, Matrices<const T> covariance, Matrices<T> result,
                  LayerMatrixState<T> state, const Executor& executor) {
  check_layer_matrix("keel::layer_matrix", map, covariance, result, state);
  std::visit(Forward<T>{covariance, result, state, executor}, map);
}

template <typename T>
void layer_matrix_backward(const LayerMap& map, const SpectralRule& rule,
                           Matrices<const T> covariance, LayerMatrixState<const T> state,
                           Matrices<const T> dL_dlayer_matrix, Matrices<T> dL_dcovariance,
                           const Executor& executor) {
  check_layer_matrix_backward("keel::layer_matrix_backward", map, rule, covariance, state,
                              dL_dlayer_matrix, dL_dcovariance);
  std::visit(Backward<T>{rule, covariance, state, dL_dlayer_matrix, dL_dcovariance, executor}, map);
}

#define KEEL_STAGES(T)        \
  KEEL_STAGE(layer_matrix, T) \
  KEEL_STAGE(layer_matrix_backward, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
