#pragma once

// The backward of diag(weight) S of a ZCA layer for n <= 64: weight_backward and
// layer_matrix_backward in one launch. It loads the forward state and computes the kernel F before
// the previous kernel, which sums the cross moments, has finished.

#include "cuda/launch/early_start.cuh"
#include "cuda/spectral/device_spectrum.cuh"

namespace keel::cuda {

template <typename T>
struct ZcaGradient {
  SpectralMap<T> map;
  DeviceRule<T> rule;
  const T* values;
  Matrices<const T> vectors;
  const std::int64_t* rank;
  Matrices<const T> layer_matrix;
  const T* weight;  ///< null: ones
  const T* sum;
  Matrices<const T> cross;
  T *dL_dweight, *dL_dmean;
  Matrices<T> dL_dcovariance, matrix;
};

namespace small {

template <typename T, int N>
using ZcaMemory = Storage<T, N, 5, 5 + Fetched<T, N>::kStep>;

template <typename T, int N>
__global__ void __launch_bounds__(Squad<T, N>::kBlock, Squad<T, N>::kBlocks)
    zca_backward_kernel(const __grid_constant__ ZcaGradient<T> a) {
  using S = Squad<T, N>;
  constexpr int kStride = S::kStride, kParts = Fetched<T, N>::kStep;
  const S squad(a.vectors.batch, a.vectors.n);
  auto& shared = storage<ZcaMemory<T, N>>(squad);
  T *const v = shared.matrix[0], *const u = shared.matrix[1], *const c = shared.matrix[2],
           *const p = shared.matrix[3], *const f = shared.matrix[4];
  T *const weight = shared.vector[3], *const weighted_sum = shared.vector[4];
  T(*const along)[N] = shared.vector + 5;
  const int n = squad.n, mine = squad.thread < n ? squad.thread : 0;
  const std::int64_t first = squad.index * n;  // channel

  Fetched<T, N> basis = fetch(squad, a.vectors), own = fetch(squad, a.layer_matrix);
  const T factor = a.weight != nullptr ? a.weight[first + mine] : T(1);
  if (squad.thread < n) weight[mine] = factor;
  const auto spectrum = read_spectrum<T, N>(squad, a.map, a.values, a.rank, shared.vector);
  put(squad, basis, v);
  put_transposed(squad, basis, u);
  squad.template for_each_entry<1>(
      [&](int i, int j) { f[i * kStride + j] = spectrum.kernel(a.rule, i, j); });

  await_previous();
  let_next_start();
  Fetched<T, N> cross = fetch(squad, a.cross);
  if (squad.thread < n) weighted_sum[mine] = factor * a.sum[first + mine];
  own.for_each(squad, [&](T s, int i, int j) {
    if (squad.exists) a.matrix[squad.index][i * a.matrix.row_stride + j] = weight[i] * s;
    p[i * kStride + j] = s;
  });
  cross.for_each(squad, [&](T entry, int i, int j) {
    c[i * kStride + j] = weight[i] * entry;
    p[i * kStride + j] *= entry;
  });
  squad.sync();

  // dL_dmean_j = -sum_i S_ij weight_i sum_i: first over each thread's rows, then over the threads.
  T column_sum = 0;
  own.for_each(squad, [&](T s, int i, int) { column_sum += weighted_sum[i] * s; });
  along[squad.thread / N][squad.thread % N] = column_sum;
  // dL_dweight_i = sum_j cross_ij S_ij, with kParts adjacent threads per row.
  T row_sum = 0;
  const int row = squad.thread / kParts;
  if (row < n)
#pragma unroll 4
    for (int j = squad.thread % kParts; j < n; j += kParts) row_sum += p[row * kStride + j];
#pragma unroll
  for (int r = 1; r < kParts; r *= 2) row_sum += __shfl_xor_sync(0xffffffffu, row_sum, r);
  if (squad.exists && row < n && squad.thread % kParts == 0) a.dL_dweight[first + row] = row_sum;
  symmetrise(squad, c);
  if (squad.exists && squad.thread < n) {
    T total = 0;
#pragma unroll
    for (int part = 0; part < kParts; ++part) total += along[part][mine];
    a.dL_dmean[first + mine] = -total;
  }

  multiply(squad, n, c, v, p);
  multiply(squad, n, u, p, c);
  squad.template for_each_entry<4>([&](int i, int j) { c[i * kStride + j] *= f[i * kStride + j]; });
  squad.sync();
  out_of_basis(squad, v, u, c, p);
  store_symmetric(squad, c, a.dL_dcovariance);
}

}  // namespace small

}  // namespace keel::cuda
