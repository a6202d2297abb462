#include "cuda/launch/launch.h"
#include "cuda/layer_matrix/zca_backward.cuh"

#include <variant>

#include "cuda/whiten/shortcuts.h"
#include "instantiate.h"
#include "keel/weight_backward.h"

namespace keel::cuda {
namespace {

/// Whether this device can run zca_backward_kernel for this size.
template <typename T>
bool has_zca_kernel(std::int64_t n) {
  return n <= kLargestSmall && by_small_size(n, [](auto size) {
           return fits_a_block(small::kZcaBytes<T, decltype(size)::value, 1>);
         });
}

/// With PARTS blocks for each matrix.
template <typename T, int N, int PARTS>
void launch_zca(const char* operation, const ZcaGradient<T>& arguments, const Stream& stream) {
  using S = small::PanelTeam<T, N, PARTS>;
  constexpr int kBytes = small::kZcaBytes<T, N, PARTS>;
  static_assert(kBytes <= 227 * 1024);
  launch(operation, small::zca_backward_kernel<T, N, PARTS>,
         {.blocks = S::blocks_for(arguments.vectors.batch),
          .threads = S::kBlockThreads,
          .bytes = kBytes,
          .early = true,
          .cluster = S::kParts},
         stream, arguments);
}

}  // namespace

template <typename T>
void weighted_layer_matrix_backward(const LayerMap& map, const SpectralRule& rule,
                                    Matrices<const T> covariance, LayerMatrixState<const T> state,
                                    Matrices<const T> layer_matrix, const T* weight, const T* sum,
                                    Matrices<const T> cross, T* dL_dweight, T* dL_dmean,
                                    Matrices<T> dL_dcovariance, Matrices<T> matrix,
                                    const Stream& stream) {
  constexpr const char* kOperation = "keel::layer_matrix_backward";
  const std::int64_t batch = covariance.batch, n = covariance.n;
  if (!std::holds_alternative<Zca>(map) || !has_zca_kernel<T>(n)) {
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
  const SpectralFunction inv_sqrt{SpectralFunction::Kind::inv_sqrt};
  const ZcaGradient<T> arguments{SpectralMap<T>(inv_sqrt, T(std::get<Zca>(map).eps)),
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
  by_small_size(n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    if constexpr (N == 64) {
      static_assert(small::kZcaBytes<T, N, 4> <= small::kZcaBytes<T, N, 1>);
      if (shares_matrices(n, batch, 4, small::kZcaBlocks<T, N, 4>, this_card()) &&
          runs_in_clusters<small::zca_backward_kernel<T, N, 4>>())
        return launch_zca<T, N, 4>(kOperation, arguments, stream);
    }
    launch_zca<T, N, 1>(kOperation, arguments, stream);
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(weighted_layer_matrix_backward, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
