#include "cuda/layer_matrix/zca_backward.cuh"

#include <variant>

#include "cuda/whiten/shortcuts.h"
#include "instantiate.h"
#include "keel/weight_backward.h"

namespace keel::cuda {

template <typename T>
void weighted_layer_matrix_backward(const LayerMap& map, const SpectralRule& rule,
                                    Matrices<const T> covariance, LayerMatrixState<const T> state,
                                    Matrices<const T> layer_matrix, const T* weight, const T* sum,
                                    Matrices<const T> cross, T* dL_dweight, T* dL_dmean,
                                    Matrices<T> dL_dcovariance, Matrices<T> matrix,
                                    const Stream& stream) {
  constexpr const char* kOperation = "keel::layer_matrix_backward";
  const std::int64_t batch = covariance.batch, n = covariance.n;
  if (!small::fits<T, small::ZcaMemory>(n) || !std::holds_alternative<Zca>(map)) {
    Scratch<T> memory(kOperation, stream, batch * n * n);
    const auto dL_dlayer_matrix = contiguous<T>(memory, batch, n);
    weight_backward<T>(weight, layer_matrix, sum, cross, dL_dweight, dL_dmean, dL_dlayer_matrix,
                       matrix, stream);
    return layer_matrix_backward<T>(map, rule, covariance, state, dL_dlayer_matrix, dL_dcovariance,
                                    stream);
  }
  validate(map);
  validate(rule);
  if (batch == 0 || n == 0) return;
  const ZcaGradient<T> arguments{SpectralMap<T>(SpectralFunction{SpectralFunction::Kind::inv_sqrt}),
                                 device_rule<T>(rule, n),
                                 state.values,
                                 state.vectors,
                                 state.rank,
                                 layer_matrix,
                                 weight,
                                 sum,
                                 cross,
                                 dL_dweight,
                                 dL_dmean,
                                 dL_dcovariance,
                                 matrix};
  small::by_size(n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    small::launch_early<T, N, small::ZcaMemory<T, N>>(kOperation, small::zca_backward_kernel<T, N>,
                                                      batch, stream, arguments);
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(weighted_layer_matrix_backward, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
