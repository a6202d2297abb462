#include "cuda/subspace/zca_backward.cuh"

#include <variant>

#include "cuda/whiten/stages.h"
#include "keel/scale.h"

namespace keel::cuda {

template <typename T>
void matrix_backward(const SubspaceMap& map, const SpectralRule& rule, Matrices<const T> covariance,
                     SubspaceState<const T> state, Matrices<const T> subspace, const T* weight,
                     const T* sum, Matrices<const T> cross, T* dL_dweight, T* dL_dmean,
                     Matrices<T> dL_dcovariance, Matrices<T> matrix, const Stream& stream) {
  constexpr const char* kOperation = "keel::subspace_backward";
  const std::int64_t batch = covariance.batch, n = covariance.n;
  if (!small::fits<T, small::ZcaMemory>(n) || !std::holds_alternative<Zca>(map)) {
    Scratch<T> memory(kOperation, stream, batch * n * n);
    const auto dL_dsubspace = contiguous<T>(memory, batch, n);
    scale_backward<T>(weight, subspace, sum, cross, dL_dweight, dL_dmean, dL_dsubspace, matrix,
                      stream);
    return subspace_backward<T>(map, rule, covariance, state, dL_dsubspace, dL_dcovariance, stream);
  }
  validate(map);
  validate(rule);
  if (batch == 0 || n == 0) return;
  const ZcaGradient<T> arguments{SpectralMap<T>(SpectralFunction{SpectralFunction::Kind::inv_sqrt}),
                                 device_rule<T>(rule, n),
                                 state.values,
                                 state.vectors,
                                 state.rank,
                                 subspace,
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

#define KEEL_INSTANTIATE(T)                                                                    \
  template void matrix_backward(const SubspaceMap&, const SpectralRule&, Matrices<const T>,    \
                                SubspaceState<const T>, Matrices<const T>, const T*, const T*, \
                                Matrices<const T>, T*, T*, Matrices<T>, Matrices<T>,           \
                                const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
