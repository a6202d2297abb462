#include "keel/layer_matrix.h"

#include "cuda/layer_matrix/backward.cuh"
#include "cuda/layer_matrix/fused.cuh"
#include "cuda/matrix/large.cuh"
#include "cuda/whiten/shortcuts.h"
#include "instantiate.h"
#include "keel/eigh.h"
#include "layer_matrix_stages.h"
#include "spectral_check.h"

namespace keel::cuda {

namespace {

using Kind = SpectralFunction::Kind;
constexpr const char *kForward = "keel::layer_matrix", *kBackward = "keel::layer_matrix_backward";

/// M = Cov + eps I, or D Cov D + eps I if the map standardises.
template <typename T>
struct Prepare {
  Matrices<const T> covariance;
  Matrices<T> M;
  T eps;
  bool standardise;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const std::int64_t row = i > j ? i : j, column = i > j ? j : i;
    T x = covariance[b][row * covariance.row_stride + column];
    if (standardise)
      x = x * standard(covariance, b, row, eps) * standard(covariance, b, column, eps);
    M[b][i * M.row_stride + j] = i == j ? x + eps : x;
  }
};

/// The eigenvalues that the map uses: none is below eps.
template <typename T>
struct RaiseValues {
  const T* found;
  T* values;
  std::int64_t n;
  T eps;
  __device__ void operator()(std::int64_t b, std::int64_t, std::int64_t i) const {
    values[b * n + i] = raised(found[b * n + i], eps);
  }
};

/// result <- from diag(standard), entry by entry.
template <typename T>
struct Standardise {
  Matrices<const T> covariance, from;
  Matrices<T> result;
  T eps;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    result[b][i * result.row_stride + j] =
        from[b][i * from.row_stride + j] * standard(covariance, b, j, eps);
  }
};

template <typename T>
struct WhitenedRows {
  const T* values;
  LayerMatrixState<T> state;
  Matrices<T> result;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const T length = std::sqrt(values[b * result.n + i]);
    // Multiplying by a NaN length keeps all rows of a bad group NaN, including the dropped ones.
    result[b][i * result.row_stride + j] =
        i < state.rank[b] ? state.vectors[b][j * state.vectors.row_stride + i] / length
                          : T(0) * length;
  }
};

/// to <- diag(weight) from.
template <typename T>
struct ScaleRows {
  const T* weight;
  Matrices<const T> from;
  Matrices<T> to;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const T factor = weight != nullptr ? weight[b * to.n + i] : T(1);
    to[b][i * to.row_stride + j] = factor * from[b][i * from.row_stride + j];
  }
};

/// The map stage by stage, for matrices too large for the fused kernel (layer_matrix/fused.cuh).
template <typename T>
struct Forward {
  Matrices<const T> covariance;
  Matrices<T> result;
  LayerMatrixState<T> state;
  const Stream& stream;

  void decompose(double eps, const RankPolicy& policy, bool standardise, T* values) const {
    const std::int64_t batch = covariance.batch, n = covariance.n;
    Scratch<T> memory(kForward, stream, batch * n * n);
    const auto M = contiguous<T>(memory, batch, n);
    large::for_each_entry(kForward, stream, batch, n,
                          Prepare<T>{covariance, M, T(eps), standardise});
    eigh<T>(M, state.values, state.vectors, EighOrder::descending, nullptr, stream);
    large::for_each_value(kForward, stream, batch, n,
                          RaiseValues<T>{state.values, values, n, T(eps)});
    spectral_rank<T>(policy, M, values, state.vectors, state.rank, stream);
  }

  void operator()(const Zca& map) const {
    const Scratch<T> values(kForward, stream, covariance.batch * covariance.n);
    decompose(map.eps, map.rank, false, values);
    spectral<T>({Kind::inv_sqrt}, values, state.vectors, state.rank, result, stream);
  }

  void operator()(const PcaDenoising& map) const {
    const Scratch<T> values(kForward, stream, covariance.batch * covariance.n);
    decompose(map.eps, map.rank, true, values);
    spectral<T>({Kind::one}, values, state.vectors, state.rank, result, stream);
    large::for_each_entry(kForward, stream, result.batch, result.n,
                          Standardise<T>{covariance, result, result, T(map.eps)});
  }

  void operator()(const PcaWhitening& map) const {
    const Scratch<T> values(kForward, stream, covariance.batch * covariance.n);
    decompose(map.eps, map.rank, false, values);
    large::for_each_entry(kForward, stream, result.batch, result.n,
                          WhitenedRows<T>{values, state, result});
  }
};

/// dL_dscale of PCA denoising for one channel. dL_dM and the projector are symmetric.
template <typename T>
struct ScaleGradient {
  Matrices<const T> covariance, dL_dlayer_matrix, projector, dL_dM;
  T* dL_dscale;
  T eps;
  __device__ void operator()(std::int64_t b, std::int64_t, std::int64_t i) const {
    const std::int64_t n = covariance.n;
    T sum = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t row = i > j ? i : j, column = i > j ? j : i;
      sum += dL_dlayer_matrix[b][j * dL_dlayer_matrix.row_stride + i] *
                 projector[b][j * projector.row_stride + i] +
             2 * dL_dM[b][j * dL_dM.row_stride + i] *
                 covariance[b][row * covariance.row_stride + column] *
                 standard(covariance, b, j, eps);
    }
    dL_dscale[b * n + i] = sum;
  }
};

/// Turns dL_dM into dL_dcovariance in place, given dL_dscale.
template <typename T>
struct BackThroughScale {
  Matrices<const T> covariance;
  const T* dL_dscale;
  Matrices<T> gradient;
  T eps;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const T s_i = standard(covariance, b, i, eps), s_j = standard(covariance, b, j, eps);
    T& entry = gradient[b][i * gradient.row_stride + j];
    entry *= s_i * s_j;
    if (i == j) entry -= dL_dscale[b * gradient.n + i] * s_i * s_i * s_i / 2;
  }
};

/// dL_dvectors of PCA whitening, from S = diag(values)^(-1/2) V^T.
template <typename T>
struct VectorGradient {
  T eps;
  LayerMatrixState<const T> state;
  Matrices<const T> dL_dlayer_matrix;
  Matrices<T> dL_dvectors;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const std::int64_t n = dL_dvectors.n;
    const T factor =
        j < state.rank[b] ? T(1) / std::sqrt(raised(state.values[b * n + j], eps)) : T(0);
    dL_dvectors[b][i * n + j] = dL_dlayer_matrix[b][j * dL_dlayer_matrix.row_stride + i] * factor;
  }
};
template <typename T>
struct ValueGradient {
  T eps;
  bool textbook;
  LayerMatrixState<const T> state;
  Matrices<const T> dL_dvectors;
  T* dL_dvalues;
  __device__ void operator()(std::int64_t b, std::int64_t, std::int64_t i) const {
    const std::int64_t n = dL_dvectors.n;
    T sum = 0;
    for (std::int64_t j = 0; j < n; ++j)
      sum += dL_dvectors[b][j * n + i] * state.vectors[b][j * state.vectors.row_stride + i];
    const T found = state.values[b * n + i];
    // Dropped values may be 0.
    dL_dvalues[b * n + i] = -sum * slope_above(eps, textbook, found) /
                            (i < state.rank[b] ? 2 * raised(found, eps) : T(1));
  }
};

template <typename T>
struct Backward {
  const SpectralRule& rule;
  Matrices<const T> covariance;
  LayerMatrixState<const T> state;
  Matrices<const T> dL_dlayer_matrix;
  Matrices<T> dL_dcovariance;
  const Stream& stream;

  LayerMatrixGradient<T> plain(const DeviceRule<T>& device_rule, double eps) const {
    return {device_rule,   T(eps),     covariance,       state.values,
            state.vectors, state.rank, dL_dlayer_matrix, dL_dcovariance};
  }

  void operator()(const Zca& map) const {
    spectral_backward_above<T>(T(map.eps), {Kind::inv_sqrt}, rule, state.values, state.vectors,
                               state.rank, dL_dlayer_matrix, dL_dcovariance, stream);
  }

  void operator()(const PcaDenoising& map) const {
    const std::int64_t batch = covariance.batch, n = covariance.n;
    if (batch == 0 || n == 0) return;
    if (!small::fits<T, small::DenoisingMemory>(n)) return large_denoising(T(map.eps));
    const SpectralMap<T> one(SpectralFunction{Kind::one}, T(map.eps));
    const auto arguments = plain(device_rule<T>(rule, n), map.eps);
    by_small_size(n, [&](auto size) {
      constexpr int N = decltype(size)::value;
      small::launch<T, N, small::DenoisingMemory<T, N>>(
          kBackward, small::denoising_backward_kernel<T, N>, batch, stream, one, arguments);
    });
  }

  void operator()(const PcaWhitening& map) const {
    const std::int64_t batch = covariance.batch, n = covariance.n;
    if (batch == 0 || n == 0) return;
    const GradientRule chosen = eigh_rule(rule);
    if (!small::fits<T, small::WhiteningMemory>(n)) return large_whitening(chosen, T(map.eps));
    const auto arguments = plain(device_rule<T>(chosen, n), map.eps);
    by_small_size(n, [&](auto size) {
      constexpr int N = decltype(size)::value;
      small::launch<T, N, small::WhiteningMemory<T, N>>(
          kBackward, small::whitening_backward_kernel<T, N>, batch, stream, arguments);
    });
  }

  void large_denoising(T eps) const {
    const std::int64_t batch = covariance.batch, n = covariance.n;
    Scratch<T> memory(kBackward, stream, batch * n * n), dL_dscale(kBackward, stream, batch * n);
    const auto dL_dprojector = contiguous<T>(memory, batch, n);
    large::for_each_entry(kBackward, stream, batch, n,
                          Standardise<T>{covariance, dL_dlayer_matrix, dL_dprojector, eps});
    spectral_backward_above<T>(eps, {Kind::one}, rule, state.values, state.vectors, state.rank,
                               dL_dprojector, dL_dcovariance, stream);
    const auto projector = dL_dprojector;  // the gradient has been used
    spectral<T>({Kind::one}, state.values, state.vectors, state.rank, projector, stream);
    large::for_each_value(
        kBackward, stream, batch, n,
        ScaleGradient<T>{covariance, dL_dlayer_matrix, projector, dL_dcovariance, dL_dscale, eps});
    large::for_each_entry(kBackward, stream, batch, n,
                          BackThroughScale<T>{covariance, dL_dscale, dL_dcovariance, eps});
  }

  void large_whitening(const GradientRule& chosen, T eps) const {
    const std::int64_t batch = covariance.batch, n = covariance.n;
    Scratch<T> memory(kBackward, stream, batch * n * n), dL_dvalues(kBackward, stream, batch * n);
    const auto dL_dvectors = contiguous<T>(memory, batch, n);
    large::for_each_entry(kBackward, stream, batch, n,
                          VectorGradient<T>{eps, state, dL_dlayer_matrix, dL_dvectors});
    large::for_each_value(kBackward, stream, batch, n,
                          ValueGradient<T>{eps, std::holds_alternative<Analytic>(chosen), state,
                                           dL_dvectors, dL_dvalues});
    eigh_backward_above<T>(eps, state.rank, chosen, state.values, state.vectors, dL_dvalues,
                           dL_dvectors, dL_dcovariance, stream);
  }
};

}  // namespace

template <typename T>
void layer_matrix(const LayerMap& map, Matrices<const T> covariance, Matrices<T> result,
                  LayerMatrixState<T> state, const Stream& stream) {
  weighted_layer_matrix<T>(map, covariance, nullptr, result, {}, state, stream);
}

template <typename T>
void weighted_layer_matrix(const LayerMap& map, Matrices<const T> covariance, const T* weight,
                           Matrices<T> result, Matrices<T> matrix, LayerMatrixState<T> state,
                           const Stream& stream) {
  check_layer_matrix(kForward, map, covariance, result, state);
  const std::int64_t batch = covariance.batch, n = covariance.n;
  if (batch == 0) return;
  if (n == 0)
    return check(kForward, cudaMemsetAsync(state.rank, 0, std::size_t(batch) * sizeof *state.rank,
                                           native(stream)));
  if (fits_in_block<T>(n, this_card(), true))
    return launch_layer_matrix(kForward, map, covariance, weight, result, matrix, state, stream);
  std::visit(Forward<T>{covariance, result, state, stream}, map);
  if (matrix)
    large::for_each_entry(kForward, stream, batch, n, ScaleRows<T>{weight, result, matrix});
}

template <typename T>
void layer_matrix_backward(const LayerMap& map, const SpectralRule& rule,
                           Matrices<const T> covariance, LayerMatrixState<const T> state,
                           Matrices<const T> dL_dlayer_matrix, Matrices<T> dL_dcovariance,
                           const Stream& stream) {
  check_layer_matrix_backward(kBackward, map, rule, covariance, state, dL_dlayer_matrix,
                              dL_dcovariance);
  std::visit(Backward<T>{rule, covariance, state, dL_dlayer_matrix, dL_dcovariance, stream}, map);
}

#define KEEL_STAGES(T)                 \
  KEEL_STAGE(layer_matrix, T)          \
  KEEL_STAGE(layer_matrix_backward, T) \
  KEEL_STAGE(weighted_layer_matrix, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
