#pragma once

// Covariance -> eigenvalues, rank and S in one launch: nothing leaves the chip in between.

#include "eigh_block.cuh"
#include "keel/subspace.h"
#include "rank.cuh"

namespace keel::cuda {

/// A SubspaceMap and its arguments as a kernel takes them.
template <typename T>
struct SubspaceTask {
  enum class Map { zca, pca_denoising, pca_whitening };
  Map map;
  T eps;
  DeviceRankPolicy policy;
  Matrices<const T> covariance;
  Matrices<T> result;
  SubspaceState<T> state;

  static Map of(const Zca&) { return Map::zca; }
  static Map of(const PcaDenoising&) { return Map::pca_denoising; }
  static Map of(const PcaWhitening&) { return Map::pca_whitening; }
};

template <typename T, int N>
struct SubspaceStorage : Storage<T, N> {
  T standard[N], quotient[N];
  int rank;
};

/// s.quotient = the Rayleigh quotients of Algorithm 1 before deflation, and s.vectors = V^T V.
template <typename T, int N, typename Entry>
__device__ void rayleigh_quotients(const Team<T, N>& team, int n, const Entry& entry,
                                   SubspaceStorage<T, N>& s) {
  constexpr int kRow = Team<T, N>::kRow;
  const int j = team.column();
#pragma unroll
  for (int k = 0; k < Team<T, N>::kOwn; ++k) {
    const int c = team.element(k);
    if (c <= j && j < n) s.vectors[j * kRow + c] = s.vectors[c * kRow + j] = entry(j, c);
  }
  team.sync();
  Tile<T, N> product(team);
  product.add_products(0, n, s.vectors, s.update);  // M is symmetric: its rows are its columns
  product.store([&](int row, int column, T x) { s.reflectors[row * kRow + column] = x; });
  team.sync();
  T sum = 0;
  if (j < n)
#pragma unroll 4
    for (int r = team.lane(); r < n; r += team.lanes())
      sum += s.update[r * kRow + j] * s.reflectors[r * kRow + j];
  sum = team.sum(sum);
  if (j < n && team.lane() == 0) s.quotient[j] = sum;
  Tile<T, N> overlaps(team);
  overlaps.add_products(0, n, s.update, s.update);
  overlaps.store([&](int row, int column, T x) { s.vectors[row * kRow + column] = x; });
  team.sync();
}

/// S of zero-phase whitening or PCA denoising from s.sorted_value, s.update and s.rank.
template <typename T, int N>
__device__ void symmetric_map(const Team<T, N>& team, int n, const SubspaceTask<T>& task, T* result,
                              int writable, SubspaceStorage<T, N>& s) {
  constexpr int kRow = Team<T, N>::kRow;
  const bool denoising = task.map == SubspaceTask<T>::Map::pca_denoising;
  const int r = team.column();
#pragma unroll
  for (int k = 0; k < Team<T, N>::kOwn; ++k) {
    const int c = team.element(k);
    if (r >= n || c >= n) continue;
    const T v = s.update[r * kRow + c];
    s.vectors[c * kRow + r] = v;
    s.reflectors[c * kRow + r] = denoising ? v : v / sqrt(s.sorted_value[c]);
  }
  team.sync();
  Tile<T, N> product(team);
  product.add_products(0, s.rank, s.vectors, s.reflectors);
  product.store([&](int row, int column, T x) { s.update[row * kRow + column] = x; });
  team.sync();
  if (r < writable)
#pragma unroll
    for (int k = 0; k < Team<T, N>::kOwn; ++k) {
      const int c = team.element(k);
      if (c >= n) continue;
      const T x = (s.update[r * kRow + c] + s.update[c * kRow + r]) / 2;
      result[r * task.result.row_stride + c] = denoising ? x * s.standard[c] : x;
    }
}

template <typename T, int N>
__global__ void __launch_bounds__(Team<T, N>::kSize* kTeams<T, N>)
    subspace_kernel(SubspaceTask<T> task) {
  using Map = typename SubspaceTask<T>::Map;
  using Members = Team<T, N>;
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const all = reinterpret_cast<SubspaceStorage<T, N>*>(memory);
  const int n = int(task.covariance.n), slot = threadIdx.x / Members::kSize;
  const std::int64_t index = std::int64_t(blockIdx.x) * kTeams<T, N> + slot;
  const std::int64_t stride = task.covariance.row_stride;
  const Members team{int(threadIdx.x) % Members::kSize};
  SubspaceStorage<T, N>& s = all[slot];
  // Teams without a matrix work on a neighbour's, since a warp runs in step, and write nothing.
  const bool exists = index < task.covariance.batch;
  const T* const source = task.covariance[exists ? index : task.covariance.batch - 1];
  const bool denoising = task.map == Map::pca_denoising;
  if (denoising)
    for (int i = team.thread; i < n; i += Members::kSize)
      s.standard[i] = T(1) / sqrt(source[i * stride + i] + task.eps);
  team.sync();
  const auto entry = [&](int r, int c) {
    T x = source[r * stride + c];
    if (denoising) x = x * s.standard[r] * s.standard[c];
    return r == c ? x + task.eps : x;
  };
  decompose(team, n, entry, s);
  for (int i = team.thread; i < n; i += Members::kSize)
    if (s.sorted_value[i] < task.eps) s.sorted_value[i] = task.eps;  // NaN stays
  team.sync();
  if (exists)
    store_decomposition(team, n, s, task.state.values + index * n, task.state.vectors[index],
                        task.state.vectors.row_stride);

  if (task.policy.by_rayleigh) rayleigh_quotients(team, n, entry, s);
  // The first warp of each team finds the rank; a warp of several teams takes them in turn.
  constexpr int kTeamsInWarp = Members::kBlock ? 1 : 32 / Members::kSize;
  if (team.thread < 32)
    for (int t = 0; t < kTeamsInWarp; ++t) {
      SubspaceStorage<T, N>& one = all[slot / kTeamsInWarp * kTeamsInWarp + t];
      if (task.policy.by_rayleigh) deflate_by_warp(n, one.vectors, Members::kRow, one.quotient);
      const int rank = rank_by_warp(task.policy, n, one.sorted_value, one.quotient);
      if (threadIdx.x % 32 == 0) one.rank = rank;
    }
  team.sync();
  if (exists && team.thread == 0) task.state.rank[index] = s.rank;
  T* const result = task.result[exists ? index : 0];
  const int writable = exists ? n : 0;
  if (task.map != Map::pca_whitening) {
    symmetric_map(team, n, task, result, writable, s);
    return;
  }
  const int i = team.column();
  if (i < writable)
#pragma unroll
    for (int k = 0; k < Members::kOwn; ++k) {
      const int j = team.element(k);
      // Dividing by a NaN length keeps a bad group's rows NaN, dropped ones included.
      if (j < n)
        result[i * task.result.row_stride + j] =
            (i < s.rank ? s.update[j * Members::kRow + i] : T(0)) / sqrt(s.sorted_value[i]);
    }
}

template <typename T>
cudaError_t launch_subspace(const SubspaceMap& map, Matrices<const T> covariance,
                            Matrices<T> result, SubspaceState<T> state, const Stream& stream) {
  const auto task = std::visit(
      [&](const auto& chosen) {
        return SubspaceTask<T>{SubspaceTask<T>::of(chosen),
                               T(chosen.eps),
                               device_rank_policy(chosen.rank),
                               covariance,
                               result,
                               state};
      },
      map);
  return by_team<T>(covariance.n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    return launch_teams<T, N, SubspaceStorage<T, N>>(subspace_kernel<T, N>, covariance.batch,
                                                     native(stream), task);
  });
}

}  // namespace keel::cuda
