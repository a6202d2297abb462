#pragma once

// The backward of diag(weight) S of a ZCA layer for n <= 64: weight_backward and
// layer_matrix_backward in one launch. It loads the forward state and computes the kernel F before
// the previous kernel, which sums the cross moments, has finished. What comes after that is on the
// critical path of a layer, so for n > 32 four blocks share a matrix. That is more work in total:
// many matrices have a block each. The bits of the results are the same.

#include <algorithm>

#include "cuda/launch/early_start.cuh"
#include "cuda/matrix/panel.cuh"
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

/// What only blocks that share a matrix need.
template <typename T, int N, int PARTS>
struct alignas(16) ZcaExchange {
  using Panel = T[N * PanelSquad<T, N, PARTS>::kPanelStride];
  Panel basis;       // the panel of V
  Panel transposed;  // Other blocks write it, too.
};
template <typename T, int N>
struct ZcaExchange<T, N, 1> {};

template <typename T, int N, int PARTS>
struct alignas(16) ZcaMemory : ZcaExchange<T, N, PARTS> {
  using S = PanelSquad<T, N, PARTS>;
  T v[N * S::kStride], u[N * S::kStride], c[N * S::kStride];
  // First diag(weight) cross. An odd stride: columns are read without conflicts, too.
  T p[N * std::max(N + 1, S::kPanelStride)];
  T f[N * S::kPanelStride];
  T vector[3][N], weight[N];

  __device__ T* basis() {
    if constexpr (PARTS > 1)
      return ZcaExchange<T, N, PARTS>::basis;
    else
      return v;
  }
  __device__ T* transposed() {
    if constexpr (PARTS > 1)
      return ZcaExchange<T, N, PARTS>::transposed;
    else
      return p;
  }
};

template <typename T, int N, int PARTS>
inline constexpr int kZcaBytes =
    int(sizeof(ZcaMemory<T, N, PARTS>)) * PanelSquad<T, N, PARTS>::kSquads;

/// The number of blocks that fit a multiprocessor, at least.
template <typename T, int N, int PARTS>
inline constexpr int kZcaBlocks = kZcaBytes<T, N, PARTS> <= 112 * 1024 ? 2 : 1;

/// Sums over the threads of a row, in each of them.
template <int THREADS, typename T>
__device__ __forceinline__ T sum_of_row(T x) {
#pragma unroll
  for (int r = 1; r < THREADS; r *= 2) x += __shfl_xor_sync(0xffffffffu, x, r);
  return x;
}

template <typename T, int N, int PARTS>
__global__ void __launch_bounds__(PanelSquad<T, N, PARTS>::kBlock, kZcaBlocks<T, N, PARTS>)
    zca_backward_kernel(const __grid_constant__ ZcaGradient<T> a) {
  using S = PanelSquad<T, N, PARTS>;
  using Rows = FetchedRows<T, N, PARTS, false>;
  using OwnRows = FetchedRows<T, N, PARTS, true>;
  const S squad(a.vectors.batch, a.vectors.n);
  auto& shared = storage<ZcaMemory<T, N, PARTS>>(squad);
  const int n = squad.n;
  const std::int64_t channel = squad.index * n;
  squad.arrive();

  const Rows basis(squad, a.vectors);
  const OwnRows own(squad, a.layer_matrix);
  if (squad.thread() < N)
    shared.weight[squad.thread()] =
        a.weight != nullptr && squad.thread() < n ? a.weight[channel + squad.thread()] : T(1);
  const auto spectrum = read_spectrum<T, N>(squad, a.map, a.values, a.rank, shared.vector);
  basis.for_each(squad, [&](T entry, int i, int j) {
    shared.v[S::place(i, j)] = shared.u[S::place(j, i)] = entry;
    if (PARTS > 1 && j / S::kWidth == squad.first / S::kWidth)
      shared.basis()[S::panel_place(i, j % S::kWidth)] = entry;
  });
#pragma unroll 1
  for (int e = squad.thread(); e < N * S::kWidth; e += S::kThreads) {
    const int i = e / S::kWidth, j = e % S::kWidth, column = squad.first + j;
    shared.f[S::panel_place(i, j)] =
        i < n && column < n ? spectrum.kernel(a.rule, i, column) : T(0);
  }

  await_previous();
  let_next_start();
  const Rows cross(squad, a.cross);
  const OwnRows own_cross(squad, a.cross);
  T weighted_sum[OwnRows::kColumns];
#pragma unroll
  for (int c = 0; c < OwnRows::kColumns; ++c) {
    const int j = OwnRows::column(squad, c);
    weighted_sum[c] = j < n ? shared.weight[j] * a.sum[channel + j] : T(0);
  }
  own.for_each(squad, [&](T s, int i, int j) {
    if (squad.exists && i < n && j < n)
      a.matrix[squad.index][i * a.matrix.row_stride + j] = shared.weight[i] * s;
  });

  // c = sym(diag(weight) cross)
  cross.for_each(
      squad, [&](T entry, int i, int j) { shared.p[i * (N + 1) + j] = shared.weight[i] * entry; });
  squad.sync();
  cross.for_each(squad, [&](T entry, int i, int j) {
    shared.c[S::place(i, j)] = mean(shared.weight[i] * entry, shared.p[j * (N + 1) + i]);
  });
  squad.sync();

  // dL_dweight_i = sum_j cross_ij S_ij, dL_dmean_i = -sum_j S_ij weight_j sum_j: S is symmetric.
  const auto sum_rows = [&] {
#pragma unroll
    for (int r = 0; r < OwnRows::kRows; ++r) {
      T with_cross = 0, with_sum = 0;
#pragma unroll
      for (int c = 0; c < OwnRows::kColumns; ++c) {
        with_cross += own.entry[r][c] * own_cross.entry[r][c];
        with_sum += own.entry[r][c] * weighted_sum[c];
      }
      with_cross = sum_of_row<OwnRows::kAcross>(with_cross);
      with_sum = sum_of_row<OwnRows::kAcross>(with_sum);
      const int i = OwnRows::row(squad, r);
      if (squad.exists && i < n && squad.thread() % OwnRows::kAcross == 0) {
        a.dL_dweight[channel + i] = with_cross;
        a.dL_dmean[channel + i] = -with_sum;
      }
    }
  };
  // Registers are scarce in a large block, and there is no barrier of blocks to fill.
  if (PARTS == 1) sum_rows();

  // V (F o V^T c V) V^T, of which each block computes the columns of its panel.
  put(squad, multiply(squad, shared.c, shared.basis()), shared.p);
  squad.sync();
  PanelTile<T> tile = multiply(squad, shared.u, shared.p);
  const auto times = [](T x, T y) { return x * y; };
  put(squad, combined(tile, tile_of(squad, shared.f), times), shared.c);
  squad.sync();
  tile = multiply(squad, shared.v, shared.c);
  if (PARTS > 1) squad.wait();  // The other blocks have started.
  put_transposed(squad, tile, S::in_block_of(squad.top, shared.transposed()));
  squad.arrive();
  if (PARTS > 1) sum_rows();

  squad.wait();
  // The result is symmetric: warps above the diagonal have nothing to do.
  const int row_of_warps = squad.top / 16, column_of_warps = (squad.first + squad.left) / 16;
  if (row_of_warps < column_of_warps) return;
  const bool diagonal = row_of_warps == column_of_warps;
  tile = multiply(squad, shared.v, shared.transposed());
  if (diagonal) {
    put_transposed(squad, tile, shared.f);
    __syncwarp();
    const auto middle = [](T x, T y) { return mean(x, y); };
    tile = combined(tile, tile_of(squad, shared.f), middle);
  }
  if (!squad.exists) return;
  T* const result = a.dL_dcovariance[squad.index];
  const std::int64_t stride = a.dL_dcovariance.row_stride;
  tile.for_each(squad, [&](T entry, int i, int j) {
    const int column = squad.first + j;
    if (i >= n || column >= n) return;
    result[i * stride + column] = entry;
    if (!diagonal) result[column * stride + i] = entry;
  });
}

}  // namespace small

}  // namespace keel::cuda
