#pragma once

// The backward of diag(weight) S of a ZCA layer for n <= 64: weight_backward and
// layer_matrix_backward in one launch. It loads the forward state and computes the kernel F before
// the previous kernel, which sums the cross moments, has finished. What comes after that is on the
// critical path of a layer, so for n > 32 four blocks share a matrix. That is more work in total:
// many matrices have a block each. The bits of the results are the same.

#include <algorithm>

#include "cuda/launch/launch.h"
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
  using Panel = T[N * PanelTeam<T, N, PARTS>::kPanelStride];
  Panel basis;       // the panel of V
  Panel transposed;  // Other blocks write it, too.
};
template <typename T, int N>
struct ZcaExchange<T, N, 1> {};

template <typename T, int N, int PARTS>
struct alignas(16) ZcaMemory : ZcaExchange<T, N, PARTS> {
  using S = PanelTeam<T, N, PARTS>;
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
    int(sizeof(ZcaMemory<T, N, PARTS>)) * PanelTeam<T, N, PARTS>::kTeams;

/// The number of blocks that fit a multiprocessor, at least.
template <typename T, int N, int PARTS>
inline constexpr int kZcaBlocks = kZcaBytes<T, N, PARTS> <= 112 * 1024 ? 2 : 1;

template <typename T, int N, int PARTS>
__global__ void __launch_bounds__(PanelTeam<T, N, PARTS>::kBlockThreads, kZcaBlocks<T, N, PARTS>)
    zca_backward_kernel(const __grid_constant__ ZcaGradient<T> a) {
  using S = PanelTeam<T, N, PARTS>;
  using Rows = FetchedRows<T, N, PARTS, false>;
  using OwnRows = FetchedRows<T, N, PARTS, true>;
  const S team(a.vectors.batch, a.vectors.n);
  auto& shared = storage<ZcaMemory<T, N, PARTS>>(team);
  const int n = team.n;
  const std::int64_t channel = team.index * n;
  team.arrive();

  const Rows basis(team, a.vectors);
  const OwnRows own(team, a.layer_matrix);
  if (team.thread() < N)
    shared.weight[team.thread()] =
        a.weight != nullptr && team.thread() < n ? a.weight[channel + team.thread()] : T(1);
  const auto spectrum = read_spectrum<T, N>(team, a.map, a.values, a.rank, shared.vector);
  basis.for_each(team, [&](T entry, int i, int j) {
    shared.v[S::place(i, j)] = shared.u[S::place(j, i)] = entry;
    if (PARTS > 1 && j / S::kWidth == team.first / S::kWidth)
      shared.basis()[S::panel_place(i, j % S::kWidth)] = entry;
  });
#pragma unroll 1
  for (int e = team.thread(); e < N * S::kWidth; e += S::kSize) {
    const int i = e / S::kWidth, j = e % S::kWidth, column = team.first + j;
    shared.f[S::panel_place(i, j)] =
        i < n && column < n ? spectrum.kernel(a.rule, i, column) : T(0);
  }

  await_previous();
  let_next_start();
  const Rows cross(team, a.cross);
  const OwnRows own_cross(team, a.cross);
  T weighted_sum[OwnRows::kColumns];
#pragma unroll
  for (int c = 0; c < OwnRows::kColumns; ++c) {
    const int j = OwnRows::column(team, c);
    weighted_sum[c] = j < n ? shared.weight[j] * a.sum[channel + j] : T(0);
  }
  own.for_each(team, [&](T s, int i, int j) {
    if (team.exists && i < n && j < n)
      a.matrix[team.index][i * a.matrix.row_stride + j] = shared.weight[i] * s;
  });

  // c = sym(diag(weight) cross)
  cross.for_each(
      team, [&](T entry, int i, int j) { shared.p[i * (N + 1) + j] = shared.weight[i] * entry; });
  team.sync();
  cross.for_each(team, [&](T entry, int i, int j) {
    shared.c[S::place(i, j)] = mean(shared.weight[i] * entry, shared.p[j * (N + 1) + i]);
  });
  team.sync();

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
      with_cross = Lanes<OwnRows::kAcross>::sum(with_cross);
      with_sum = Lanes<OwnRows::kAcross>::sum(with_sum);
      const int i = OwnRows::row(team, r);
      if (team.exists && i < n && team.thread() % OwnRows::kAcross == 0) {
        a.dL_dweight[channel + i] = with_cross;
        a.dL_dmean[channel + i] = -with_sum;
      }
    }
  };
  // Registers are scarce in a large block, and there is no barrier of blocks to fill.
  if (PARTS == 1) sum_rows();

  // V (F o V^T c V) V^T, of which each block computes the columns of its panel.
  put(team, multiply(team, shared.c, shared.basis()), shared.p);
  team.sync();
  PanelTile<T> tile = multiply(team, shared.u, shared.p);
  const auto times = [](T x, T y) { return x * y; };
  put(team, combined(tile, tile_of(team, shared.f), times), shared.c);
  team.sync();
  tile = multiply(team, shared.v, shared.c);
  if (PARTS > 1) team.wait();  // The other blocks have started.
  put_transposed(team, tile, S::in_block_of(team.top, shared.transposed()));
  team.arrive();
  if (PARTS > 1) sum_rows();

  team.wait();
  // The result is symmetric: warps above the diagonal have nothing to do.
  const int row_of_warps = team.top / 16, column_of_warps = (team.first + team.left) / 16;
  if (row_of_warps < column_of_warps) return;
  const bool diagonal = row_of_warps == column_of_warps;
  tile = multiply(team, shared.v, shared.transposed());
  if (diagonal) {
    put_transposed(team, tile, shared.f);
    __syncwarp();
    const auto middle = [](T x, T y) { return mean(x, y); };
    tile = combined(tile, tile_of(team, shared.f), middle);
  }
  if (!team.exists) return;
  T* const result = a.dL_dcovariance[team.index];
  const std::int64_t stride = a.dL_dcovariance.row_stride;
  tile.for_each(team, [&](T entry, int i, int j) {
    const int column = team.first + j;
    if (i >= n || column >= n) return;
    result[i * stride + column] = entry;
    if (!diagonal) result[column * stride + i] = entry;
  });
}

}  // namespace small

}  // namespace keel::cuda
