#include "keel/spectral.h"

#include "cuda/matrix/large.cuh"
#include "cuda/spectral/device_spectrum.cuh"
#include "cuda/spectral/rank.cuh"
#include "cuda/spectral/second.cuh"
#include "cuda/spectral/tiny.cuh"
#include "instantiate.h"
#include "layer_matrix_stages.h"
#include "spectral_check.h"

namespace keel::cuda {

namespace {

constexpr const char *kForward = "keel::spectral", *kBackward = "keel::spectral_backward";

template <typename T, int N>
using ForwardMemory = small::Storage<T, N, 3, 3>;
template <typename T, int N>
using Memory = small::Storage<T, N, 4, 3>;

template <typename T, int N>
__global__ void __launch_bounds__(small::SmallTeam<T, N>::kBlockThreads,
                                  small::SmallTeam<T, N>::kBlocks)
    small_forward_kernel(SpectralMap<T> map, const T* values, Matrices<const T> vectors,
                         const std::int64_t* rank, Matrices<T> result) {
  constexpr int kStride = small::SmallTeam<T, N>::kStride;
  const small::SmallTeam<T, N> team(vectors.batch, vectors.n);
  auto& shared = small::storage<ForwardMemory<T, N>>(team);
  T *const v = shared.matrix[0], *const u = shared.matrix[1], *const p = shared.matrix[2];
  small::Fetched<T, N> basis = small::fetch(team, vectors);
  const auto spectrum = small::read_spectrum<T, N>(team, map, values, rank, shared.vector);
  basis.for_each(team, [&](T entry, int i, int k) { v[i * kStride + k] = entry * spectrum.f[k]; });
  small::put_transposed(team, basis, u);
  team.sync();
  small::multiply(team, team.n, v, u, p);
  small::store_symmetric(team, p, result);
}

template <typename T>
using BackwardArguments = SpectralBackwardArguments<T>;

template <typename T, int N>
__global__ void __launch_bounds__(small::SmallTeam<T, N>::kBlockThreads,
                                  small::SmallTeam<T, N>::kBlocks)
    small_backward_kernel(BackwardArguments<T> a) {
  const small::SmallTeam<T, N> team(a.vectors.batch, a.vectors.n);
  auto& shared = small::storage<Memory<T, N>>(team);
  T *const v = shared.matrix[0], *const u = shared.matrix[1], *const c = shared.matrix[2],
           *const p = shared.matrix[3];
  small::Fetched<T, N> basis = small::fetch(team, a.vectors),
                       gradient = small::fetch(team, a.dL_dresult);
  const auto spectrum = small::read_spectrum<T, N>(team, a.map, a.values, a.rank, shared.vector);
  small::put(team, basis, v);
  small::put_transposed(team, basis, u);
  small::put(team, gradient, c);
  team.sync();
  small::spectral_gradient(team, spectrum, a.rule, v, u, c, p);
  small::store_symmetric(team, c, a.dL_dmatrix);
}

template <typename T>
void large_forward(const SpectralMap<T>& map, const T* values, Matrices<const T> vectors,
                   const std::int64_t* rank, Matrices<T> result, const Stream& stream) {
  const std::int64_t count = vectors.batch * vectors.n;
  Scratch<T> x(kForward, stream, count), f(kForward, stream, count);
  queue_spectrum<T>(kForward, stream, map, vectors.batch, vectors.n, values, rank, x, f);
  large::multiply<true>(kForward, stream, large::ScaledColumns<T>{vectors, f},
                        large::Transposed<T>{vectors}, result);
}

/// E <- F o E.
template <typename T>
struct ScaleByKernel {
  BackwardArguments<T> a;
  T *x, *f;
  Matrices<T> E;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const std::int64_t n = E.n;
    const DeviceSpectrum<T> spectrum(a.map, int(n), a.values + b * n, a.rank[b], x + b * n,
                                     f + b * n);
    E[b][i * n + j] *= spectrum.kernel(a.rule, int(i), int(j));
  }
};

template <typename T>
void large_backward(const BackwardArguments<T>& a, const Stream& stream) {
  using namespace large;
  const std::int64_t batch = a.vectors.batch, n = a.vectors.n;
  Scratch<T> x(kBackward, stream, batch * n), f(kBackward, stream, batch * n);
  Scratch<T> first(kBackward, stream, batch * n * n), second(kBackward, stream, batch * n * n);
  const auto E = contiguous<T>(first, batch, n), product = contiguous<T>(second, batch, n);
  const Plain<T> V{a.vectors};
  const Transposed<T> U{a.vectors};
  queue_spectrum<T>(kBackward, stream, a.map, batch, n, a.values, a.rank, x, f);
  multiply(kBackward, stream, SymmetricPart<T>{a.dL_dresult}, V, product);
  multiply(kBackward, stream, U, Plain<T>{product}, E);
  for_each_entry(kBackward, stream, batch, n, ScaleByKernel<T>{a, x, f, E});
  multiply(kBackward, stream, V, Plain<T>{E}, product);
  multiply<true>(kBackward, stream, Plain<T>{product}, U, a.dL_dmatrix);
}

}  // namespace

template <typename T>
void spectral_rank(const RankPolicy& policy, Matrices<const T> matrices, const T* values,
                   Matrices<const T> vectors, std::int64_t* rank, const Stream& stream) {
  check_spectral_rank(kSpectralRank, policy, matrices, values, vectors, rank);
  if (vectors.batch == 0) return;
  const PlainRankPolicy by = plain(policy);
  if (!by.by_rayleigh || vectors.n == 0)
    return queue_rank<T>(by, vectors, values, nullptr, nullptr, rank, stream);
  if (!small::fits<T, RankMemory>(vectors.n))
    return large_rank(by, matrices, values, vectors, rank, stream);
  by_small_size(vectors.n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    small::launch<T, N, RankMemory<T, N>>(kSpectralRank, small_rank_kernel<T, N>, vectors.batch,
                                          stream, by, matrices, values, vectors, rank);
  });
}

template <typename T>
void spectral(const SpectralFunction& function, const T* values, Matrices<const T> vectors,
              const std::int64_t* rank, Matrices<T> result, const Stream& stream) {
  check_spectral(kForward, values, vectors, rank, result);
  if (vectors.n == 0 || vectors.batch == 0) return;
  const SpectralMap<T> map(function);
  if (fits_one_thread(vectors.n, vectors.batch))
    return by_tiny_size(vectors.n, [&](auto size) {
      tiny::launch(kForward, tiny::spectral_kernel<T, decltype(size)::value>, vectors.batch, stream,
                   map, values, vectors, rank, result);
    });
  if (!small::fits<T, ForwardMemory>(vectors.n))
    return large_forward(map, values, vectors, rank, result, stream);
  by_small_size(vectors.n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    small::launch<T, N, ForwardMemory<T, N>>(kForward, small_forward_kernel<T, N>, vectors.batch,
                                             stream, map, values, vectors, rank, result);
  });
}

template <typename T>
void spectral_backward(const SpectralFunction& function, const SpectralRule& rule, const T* values,
                       Matrices<const T> vectors, const std::int64_t* rank,
                       Matrices<const T> dL_dresult, Matrices<T> dL_dmatrix, const Stream& stream) {
  spectral_backward_above<T>(kNone<T>, function, rule, values, vectors, rank, dL_dresult,
                             dL_dmatrix, stream);
}

template <typename T>
void spectral_backward_above(T floor, const SpectralFunction& function, const SpectralRule& rule,
                             const T* values, Matrices<const T> vectors, const std::int64_t* rank,
                             Matrices<const T> dL_dresult, Matrices<T> dL_dmatrix,
                             const Stream& stream) {
  check_spectral_backward(kBackward, rule, values, vectors, rank, dL_dresult, dL_dmatrix);
  if (vectors.n == 0 || vectors.batch == 0) return;
  const BackwardArguments<T> arguments{SpectralMap<T>(function, floor),
                                       device_rule<T>(rule, vectors.n),
                                       values,
                                       vectors,
                                       rank,
                                       dL_dresult,
                                       dL_dmatrix};
  if (fits_one_thread(vectors.n, vectors.batch))
    return by_tiny_size(vectors.n, [&](auto size) {
      tiny::launch(kBackward, tiny::spectral_backward_kernel<T, decltype(size)::value>,
                   vectors.batch, stream, arguments);
    });
  if (!small::fits<T, Memory>(vectors.n)) return large_backward(arguments, stream);
  by_small_size(vectors.n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    small::launch<T, N, Memory<T, N>>(kBackward, small_backward_kernel<T, N>, vectors.batch, stream,
                                      arguments);
  });
}

template <typename T>
void spectral_second_backward(const SpectralFunction& function, const T* values,
                              Matrices<const T> vectors, Matrices<const T> dL_dresult,
                              Matrices<const T> dL2_ddL_dmatrix, Matrices<T> dL2_ddL_dresult,
                              Matrices<T> dL2_dmatrix, const Stream& stream) {
  check_spectral_second_backward(kSpectralSecond, values, vectors, dL_dresult, dL2_ddL_dmatrix,
                                 dL2_ddL_dresult, dL2_dmatrix);
  if (vectors.n == 0 || vectors.batch == 0) return;
  const SecondArguments<T> arguments{SpectralMap<T>(function),
                                     device_rule<T>(SpectralRule(Exact{}), vectors.n),
                                     values,
                                     vectors,
                                     dL_dresult,
                                     dL2_ddL_dmatrix,
                                     dL2_ddL_dresult,
                                     dL2_dmatrix};
  if (!small::fits<T, SecondMemory>(vectors.n)) return large_second(arguments, stream);
  by_small_size(vectors.n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    small::launch<T, N, SecondMemory<T, N>>(kSpectralSecond, small_second_kernel<T, N>,
                                            vectors.batch, stream, arguments);
  });
}

#define KEEL_STAGES(T)                   \
  KEEL_STAGE(spectral_rank, T)           \
  KEEL_STAGE(spectral, T)                \
  KEEL_STAGE(spectral_backward, T)       \
  KEEL_STAGE(spectral_backward_above, T) \
  KEEL_STAGE(spectral_second_backward, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
