#pragma once

// Covariance -> eigenvalues, rank and S in one launch: intermediate results stay on the chip.

#include "cuda/eigh/block/decompose.cuh"
#include "cuda/launch/launch.h"
#include "cuda/spectral/rank_policy.cuh"
#include "formulas/pair_weight.h"
#include "formulas/standard_factor.h"
#include "keel/layer_matrix.h"

namespace keel::cuda {

/// A LayerMap and its arguments, for a kernel.
template <typename T>
struct LayerMatrixTask {
  enum class Map { zca, pca_denoising, pca_whitening };
  Map map;
  T eps;
  PlainRankPolicy policy;
  Matrices<const T> covariance;
  const T* weight;             ///< null: ones
  Matrices<T> result, matrix;  ///< matrix = diag(weight) result; may be null
  LayerMatrixState<T> state;

  static Map of(const Zca&) { return Map::zca; }
  static Map of(const PcaDenoising&) { return Map::pca_denoising; }
  static Map of(const PcaWhitening&) { return Map::pca_whitening; }
};

template <typename T, int N>
struct LayerMatrixStorage : Storage<T, N> {
  T standard[N], quotient[N], channel_weight[N];
  int rank;
};

/// Whether the Rayleigh quotient of an eigenvalue `least` is certainly within the policy's tolerance.
/// eigh finds l with |v^T M v - l| of a few rounding errors of the largest eigenvalue, far below the
/// bound that is used here.
template <typename T>
__device__ bool surely_within(const PlainRankPolicy& policy, int n, T least, T largest) {
  return double(4 * n * kEpsilon<T> * largest) < policy.rayleigh_tolerance * double(least);
}

/// s.quotient = v^T M v of every vector v. Overwrites s.vectors. Algorithm 1 uses M deflated by the
/// vectors before v. Here the vectors are orthogonal to rounding, so deflation would change a
/// quotient by less than n l (n u)^2, far below its own rounding error.
template <typename T, int N, typename Entry>
__device__ void rayleigh_quotients(const Team<T, N>& team, int n, const Entry& entry,
                                   LayerMatrixStorage<T, N>& s) {
  using Shape = TileShape<T, N>;
  constexpr int kRow = Team<T, N>::kRow, kOwn = Team<T, N>::kOwn;
  const int j = team.column();
  T own[kOwn];
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int c = team.element(k);
    own[k] = c <= j && j < n ? entry(j, c) : T(0);
  }
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int c = team.element(k);
    if (c <= j && j < n) s.vectors[j * kRow + c] = s.vectors[c * kRow + j] = own[k];
  }
  team.sync();
  Tile<T, N> product(team);
  product.add_products(0, n, s.vectors, s.update);  // M is symmetric: its rows are its columns
  T sum[Shape::kColumns] = {};
#pragma unroll
  for (int i = 0; i < Shape::kRows; ++i) {
    const auto v = pack_at<Shape::kColumns>(s.update + (product.top + i) * kRow + product.left);
#pragma unroll
    for (int k = 0; k < Shape::kColumns; ++k)
      if (product.top + i < n) sum[k] += v.at[k] * product.sum[i][k];
  }
  // Every other thread has the same columns and different rows.
#pragma unroll
  for (int k = 0; k < Shape::kColumns; ++k) {
#pragma unroll
    for (int r = 1; r < Tile<T, N>::kAcross; r *= 2) sum[k] += team.near(sum[k], 2 * r);
    if (product.top == 0 && product.left + k < n) s.quotient[product.left + k] = sum[k];
  }
  team.sync();
}

/// Computes S of zero-phase whitening, or the projector of PCA denoising, as W W^T with W = V
/// l^(-1/4) or W = V, restricted to the kept columns. Overwrites s.update. An entry and its mirror
/// image are the same sum, term by term. Calls put(row, column, x) for each entry.
template <typename T, int N, typename Put>
__device__ void symmetric_map(const Team<T, N>& team, int n, bool whiten,
                              LayerMatrixStorage<T, N>& s, const Put& put) {
  using Members = Team<T, N>;
  constexpr int kRow = Members::kRow, kOwn = Members::kOwn, kPiece = Members::kPiece;
  constexpr int kAcross = N < 16 ? N : 16, kDown = Members::kSize / kAcross;
  constexpr int kColumns = N / kAcross, kRows = N / kDown;  // of a thread
  for (int i = team.thread(); i < n; i += Members::kSize)
    s.quotient[i] = whiten ? T(1) / sqrt(sqrt(s.sorted_value[i])) : T(1);
  team.sync();
  const int rank = s.rank;
  T own[kOwn];
  team.load(s.update + team.column() * kRow, own);
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int c = team.element(k);
    own[k] = c < rank && team.column() < n ? own[k] * s.quotient[c] : T(0);
  }
  team.store(s.update + team.column() * kRow, own);
  team.sync();

  using Four = Pack<T, kPiece>;
  const int left = team.thread() % kAcross, top = team.thread() / kAcross;
  T sum[kRows][kColumns] = {};
#pragma unroll 1
  for (int k = 0; k < rank; k += kPiece) {
    Four x[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      x[c] = *reinterpret_cast<const Four*>(s.update + (left + c * kAcross) * kRow + k);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Four y = *reinterpret_cast<const Four*>(s.update + (top + r * kDown) * kRow + k);
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
#pragma unroll
        for (int e = 0; e < kPiece; ++e) sum[r][c] += x[c].at[e] * y.at[e];
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (top + r * kDown < n && left + c * kAcross < n)
        put(top + r * kDown, left + c * kAcross, sum[r][c]);
}

template <typename T, int N>
__global__ void __launch_bounds__(Team<T, N>::kSize* kTeams<T, N>,
                                  N == 4 ? (sizeof(T) == 4 ? 12 : 7) : 0)
    layer_matrix_kernel(LayerMatrixTask<T> task) {
  using Map = typename LayerMatrixTask<T>::Map;
  using Members = Team<T, N>;
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const all = reinterpret_cast<LayerMatrixStorage<T, N>*>(memory);
  const int n = int(task.covariance.n), slot = threadIdx.x / Members::kSize;
  const std::int64_t index = std::int64_t(blockIdx.x) * kTeams<T, N> + slot;
  const std::int64_t stride = task.covariance.row_stride;
  const Members team{int(threadIdx.x) % Members::kSize};
  LayerMatrixStorage<T, N>& s = all[slot];
  // A team without a matrix repeats the last one, because a warp runs in lockstep, and writes
  // nothing.
  const bool exists = index < task.covariance.batch;
  const T* const source = task.covariance[exists ? index : task.covariance.batch - 1];
  const bool denoising = task.map == Map::pca_denoising;
  await_previous();
  let_next_start();
  const std::int64_t own = exists ? index : 0;
  for (int i = team.thread(); i < n; i += Members::kSize) {
    if (denoising) s.standard[i] = standard_factor(source[i * stride + i], task.eps);
    s.channel_weight[i] = task.weight != nullptr ? task.weight[own * n + i] : T(1);
  }
  team.sync();
  const auto entry = [&](int r, int c) {
    T x = source[r * stride + c];
    if (denoising) x = x * s.standard[r] * s.standard[c];
    return r == c ? x + task.eps : x;
  };
  decompose(team, n, entry, s);
  if (exists)
    store_decomposition(team, n, s, EighOrder::descending, task.state.values + index * n,
                        task.state.vectors[index], task.state.vectors.row_stride);
  // Each thread raises the values that it stored, so this needs no barrier before it.
  for (int i = team.thread(); i < n; i += Members::kSize)
    s.sorted_value[i] = raised(s.sorted_value[i], task.eps);
  team.sync();

  // The first warp of each team finds the rank. A warp with several teams does them one after
  // another.
  const auto find_rank = [&](const PlainRankPolicy& policy) {
    constexpr int kTeamsInWarp = Members::kBlock ? 1 : 32 / Members::kSize;
    if (team.thread() < 32)
      for (int t = 0; t < kTeamsInWarp; ++t) {
        LayerMatrixStorage<T, N>& one = all[slot / kTeamsInWarp * kTeamsInWarp + t];
        const int rank = rank_by_warp(policy, n, one.sorted_value, one.quotient);
        if (threadIdx.x % 32 == 0) one.rank = rank;
      }
    team.sync();
  };
  // Most matrices keep no eigenvalue so small that its quotient could be far off. Their quotients,
  // which cost as much as S, need not be computed.
  PlainRankPolicy without_quotients = task.policy;
  without_quotients.by_rayleigh = false;
  find_rank(without_quotients);
  if (task.policy.by_rayleigh) {
    const T least = s.sorted_value[s.rank - 1], largest = s.sorted_value[0];
    // A value of eps may have been raised to it, and then says nothing of its quotient.
    if (team.any(!(least > task.eps && surely_within(task.policy, n, least, largest)))) {
      rayleigh_quotients(team, n, entry, s);
      find_rank(task.policy);
    }
  }
  if (exists && team.thread() == 0) task.state.rank[index] = s.rank;

  T *const result = task.result[own], *const matrix =
                                          task.matrix.data != nullptr ? task.matrix[own] : nullptr;
  const auto put = [&](int i, int j, T x) {
    if (!exists) return;
    result[i * task.result.row_stride + j] = x;
    if (matrix != nullptr) matrix[i * task.matrix.row_stride + j] = s.channel_weight[i] * x;
  };
  if (task.map != Map::pca_whitening)
    return symmetric_map(team, n, task.map == Map::zca, s,
                         [&](int i, int j, T x) { put(i, j, denoising ? x * s.standard[j] : x); });
  const int i = team.column();
  if (i >= n) return;
  const T length = sqrt(s.sorted_value[i]);
#pragma unroll
  for (int k = 0; k < Members::kOwn; ++k) {
    const int j = team.element(k);
    // Multiplying by a NaN length keeps all rows of a bad group NaN, including the dropped ones.
    if (j < n) put(i, j, i < s.rank ? s.update[j * Members::kRow + i] / length : T(0) * length);
  }
}

template <typename T>
void launch_layer_matrix(const char* operation, const LayerMap& map, Matrices<const T> covariance,
                         const T* weight, Matrices<T> result, Matrices<T> matrix,
                         LayerMatrixState<T> state, const Stream& stream) {
  const auto task = std::visit(
      [&](const auto& chosen) {
        return LayerMatrixTask<T>{LayerMatrixTask<T>::of(chosen),
                                  T(chosen.eps),
                                  plain(chosen.rank),
                                  covariance,
                                  weight,
                                  result,
                                  matrix,
                                  state};
      },
      map);
  by_block_size<T>(covariance.n, [&](auto size) {
    constexpr int N = decltype(size)::value, kBytes = kBytesOfTeams<T, N, LayerMatrixStorage<T, N>>;
    static_assert(kBytes == block_bytes<T>(N, true));
    launch(operation, layer_matrix_kernel<T, N>,
           {.blocks = blocks_of_teams<T, N>(covariance.batch),
            .threads = Team<T, N>::kSize * kTeams<T, N>,
            .bytes = kBytes,
            .early = true},
           stream, task);
  });
}

}  // namespace keel::cuda
