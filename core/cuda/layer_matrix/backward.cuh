#pragma once

// The backward of PCA denoising and PCA whitening for n <= 64, in one launch each. (That of ZCA is
// spectral_backward.)

#include "cuda/gradient_rule/kernel.cuh"
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
__global__ void __launch_bounds__(Squad<T, N>::kBlock, Squad<T, N>::kBlocks)
    denoising_backward_kernel(SpectralMap<T> one, LayerMatrixGradient<T> a) {
  constexpr int kStride = Squad<T, N>::kStride;
  const Squad<T, N> squad(a.vectors.batch, a.vectors.n);
  auto& shared = storage<DenoisingMemory<T, N>>(squad);
  T *const v = shared.matrix[0], *const u = shared.matrix[1], *const c = shared.matrix[2],
           *const p = shared.matrix[3], *const scale = shared.vector[3];
  T(*const sums)[N] = shared.vector + 4;
  Fetched<T, N> basis = fetch(squad, a.vectors), dS = fetch(squad, a.dL_dlayer_matrix),
                covariance = fetch_lower(squad, a.covariance);
  const int mine = squad.thread() < squad.n ? squad.thread() : 0;
  const T own_scale = standard(a.covariance, squad.index, mine, a.eps);
  if (squad.thread() < squad.n) scale[mine] = own_scale;
  const auto spectrum = read_spectrum<T, N>(squad, one, a.values, a.rank, shared.vector);
  put(squad, basis, v);
  put_transposed(squad, basis, u);
  dS.for_each(squad, [&](T entry, int i, int j) { c[i * kStride + j] = entry * scale[j]; });
  squad.sync();
  spectral_gradient(squad, spectrum, a.rule, v, u, c, p);
  symmetrise(squad, c);  // dL_dM

  // dL_dscale_j = sum_i dS_ij P_ij + 2 dL_dM_ij Cov_ij scale_i: first over each thread's rows, then
  // over the threads.
  T dL_dscale = 0;
  multiply(squad, spectrum.rank, v, u, p);
  dS.for_each(squad, [&](T entry, int i, int j) { dL_dscale += entry * p[i * kStride + j]; });
  squad.sync();
  put_lower(squad, covariance, p);
  squad.sync();
  squad.template for_each_entry<4>(
      [&](int i, int j) { dL_dscale += 2 * c[i * kStride + j] * p[i * kStride + j] * scale[i]; });
  sums[squad.thread() / N][squad.thread() % N] = dL_dscale;
  squad.sync();
  if (!squad.exists) return;
  T* const target = a.dL_dcovariance[squad.index];
  squad.template for_each_entry<4>([&](int i, int j) {
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
__global__ void __launch_bounds__(Squad<T, N>::kBlock, Squad<T, N>::kBlocks)
    whitening_backward_kernel(LayerMatrixGradient<T> a) {
  constexpr int kStride = Squad<T, N>::kStride;
  const Squad<T, N> squad(a.vectors.batch, a.vectors.n);
  auto& shared = storage<WhiteningMemory<T, N>>(squad);
  T *const v = shared.matrix[0], *const u = shared.matrix[1], *const p = shared.matrix[2],
           *const q = shared.matrix[3], *const l = shared.vector[0],
           *const factor = shared.vector[1];
  Fetched<T, N> basis = fetch(squad, a.vectors), dS = fetch(squad, a.dL_dlayer_matrix);
  const std::int64_t rank = a.rank[squad.index];
  if (squad.thread() < squad.n) {
    const T value = a.values[squad.index * squad.n + squad.thread()];
    l[squad.thread()] = value;
    factor[squad.thread()] = squad.thread() < rank ? T(1) / std::sqrt(raised(value, a.eps)) : T(0);
  }
  squad.sync();
  put(squad, basis, v);
  put_transposed(squad, basis, u);
  // S = diag(factor) V^T, so dL_dvectors = dS^T diag(factor).
  dS.for_each(squad, [&](T entry, int i, int j) { p[j * kStride + i] = entry * factor[i]; });
  squad.sync();
  multiply(squad, squad.n, u, p, q);
  // The derivative of the factor itself: d factor / d value = -factor / (2 value), and q_ii holds
  // v_i . dS_i factor. Dropped values may be 0.
  const auto diagonal = [&](int i) {
    return -q[i * kStride + i] * slope_above(a.eps, a.rule.textbook, l[i]) /
           (i < rank ? 2 * raised(l[i], a.eps) : T(1));
  };
  weigh_pairs(squad, a.rule, a.eps, rank, l, q, diagonal, p);
  out_of_basis(squad, v, u, p, q);
  store_symmetric(squad, p, a.dL_dcovariance);
}

}  // namespace small

}  // namespace keel::cuda
