#pragma once

// The backward of PCA denoising and PCA whitening for n <= 64, in one launch each. (That of ZCA is
// spectral_backward.)

#include "cuda/gradient_rule/device_rule.cuh"
#include "cuda/spectral/device_spectrum.cuh"
#include "formulas/standard_factor.h"

namespace keel::cuda {

template <typename T>
struct LayerMatrixGradient {
  DeviceRule<T> rule;
  T eps;
  Matrices<const T> covariance;
  const T* values;
  Matrices<const T> vectors;
  const std::int64_t* rank;
  Matrices<const T> dL_dlayer_matrix;
  Matrices<T> dL_dcovariance;
};

/// The factor that standardises channel i.
template <typename T>
__device__ __forceinline__ T standard(const Matrices<const T>& covariance, std::int64_t b,
                                      std::int64_t i, T eps) {
  return standard_factor(covariance[b][i * covariance.row_stride + i], eps);
}

namespace small {

template <typename T, int N>
using DenoisingMemory = Storage<T, N, 4, 4 + Fetched<T, N>::kStep>;

template <typename T, int N>
__global__ void __launch_bounds__(SmallTeam<T, N>::kBlockThreads, SmallTeam<T, N>::kBlocks)
    denoising_backward_kernel(SpectralMap<T> one, LayerMatrixGradient<T> a) {
  constexpr int kStride = SmallTeam<T, N>::kStride;
  const SmallTeam<T, N> team(a.vectors.batch, a.vectors.n);
  auto& shared = storage<DenoisingMemory<T, N>>(team);
  T *const v = shared.matrix[0], *const u = shared.matrix[1], *const c = shared.matrix[2],
           *const p = shared.matrix[3], *const scale = shared.vector[3];
  T(*const sums)[N] = shared.vector + 4;
  Fetched<T, N> basis = fetch(team, a.vectors), dS = fetch(team, a.dL_dlayer_matrix),
                covariance = fetch_lower(team, a.covariance);
  const int mine = team.thread() < team.n ? team.thread() : 0;
  const T own_scale = standard(a.covariance, team.index, mine, a.eps);
  if (team.thread() < team.n) scale[mine] = own_scale;
  const auto spectrum = read_spectrum<T, N>(team, one, a.values, a.rank, shared.vector);
  put(team, basis, v);
  put_transposed(team, basis, u);
  dS.for_each(team, [&](T entry, int i, int j) { c[i * kStride + j] = entry * scale[j]; });
  team.sync();
  spectral_gradient(team, spectrum, a.rule, v, u, c, p);
  symmetrise(team, c);  // dL_dM

  // dL_dscale_j = sum_i dS_ij P_ij + 2 dL_dM_ij Cov_ij scale_i: first over each thread's rows, then
  // over the threads.
  T dL_dscale = 0;
  multiply(team, spectrum.rank, v, u, p);
  dS.for_each(team, [&](T entry, int i, int j) { dL_dscale += entry * p[i * kStride + j]; });
  team.sync();
  put_lower(team, covariance, p);
  team.sync();
  team.template for_each_entry<4>(
      [&](int i, int j) { dL_dscale += 2 * c[i * kStride + j] * p[i * kStride + j] * scale[i]; });
  sums[team.thread() / N][team.thread() % N] = dL_dscale;
  team.sync();
  if (!team.exists) return;
  T* const target = a.dL_dcovariance[team.index];
  team.template for_each_entry<4>([&](int i, int j) {
    T gradient = c[i * kStride + j] * (scale[i] * scale[j]);
    if (i == j) {
      T sum = 0;
      for (int part = 0; part < Fetched<T, N>::kStep; ++part) sum += sums[part][j];
      gradient -= sum * scale[j] * scale[j] * scale[j] / 2;
    }
    target[i * a.dL_dcovariance.row_stride + j] = gradient;
  });
}

template <typename T, int N>
using WhiteningMemory = Storage<T, N, 4, 2>;

template <typename T, int N>
__global__ void __launch_bounds__(SmallTeam<T, N>::kBlockThreads, SmallTeam<T, N>::kBlocks)
    whitening_backward_kernel(LayerMatrixGradient<T> a) {
  constexpr int kStride = SmallTeam<T, N>::kStride;
  const SmallTeam<T, N> team(a.vectors.batch, a.vectors.n);
  auto& shared = storage<WhiteningMemory<T, N>>(team);
  T *const v = shared.matrix[0], *const u = shared.matrix[1], *const p = shared.matrix[2],
           *const q = shared.matrix[3], *const l = shared.vector[0],
           *const factor = shared.vector[1];
  Fetched<T, N> basis = fetch(team, a.vectors), dS = fetch(team, a.dL_dlayer_matrix);
  const std::int64_t rank = a.rank[team.index];
  if (team.thread() < team.n) {
    const T value = a.values[team.index * team.n + team.thread()];
    l[team.thread()] = value;
    factor[team.thread()] = team.thread() < rank ? T(1) / std::sqrt(raised(value, a.eps)) : T(0);
  }
  team.sync();
  put(team, basis, v);
  put_transposed(team, basis, u);
  // S = diag(factor) V^T, so dL_dvectors = dS^T diag(factor).
  dS.for_each(team, [&](T entry, int i, int j) { p[j * kStride + i] = entry * factor[i]; });
  team.sync();
  multiply(team, team.n, u, p, q);
  // The derivative of the factor itself: d factor / d value = -factor / (2 value), and q_ii holds
  // v_i . dS_i factor. Dropped values may be 0.
  const auto diagonal = [&](int i) {
    return -q[i * kStride + i] * slope_above(a.eps, a.rule.textbook, l[i]) /
           (i < rank ? 2 * raised(l[i], a.eps) : T(1));
  };
  weigh_pairs(team, a.rule, a.eps, rank, l, q, diagonal, p);
  out_of_basis(team, v, u, p, q);
  store_symmetric(team, p, a.dL_dcovariance);
}

}  // namespace small

}  // namespace keel::cuda
