#pragma once

// cuda::spectral_rank: one launch if the policy needs only the eigenvalues or n <= 64, four if it
// needs the Rayleigh quotients of larger matrices.

#include "cuda/matrix/large.cuh"
#include "cuda/spectral/rank_policy.cuh"

namespace keel::cuda {

inline constexpr const char* kSpectralRank = "keel::spectral_rank";
inline constexpr int kWarpsPerBlock = 4;

/// One warp per matrix. `overlaps` and `quotients` may be null if the policy does not need them.
template <typename T>
__global__ void __launch_bounds__(32 * kWarpsPerBlock)
    rank_kernel(PlainRankPolicy policy, std::int64_t batch, int n, const T* values,
                const T* overlaps, T* quotients, std::int64_t* rank) {
  const std::int64_t b = std::int64_t(blockIdx.x) * kWarpsPerBlock + std::int64_t(threadIdx.x / 32);
  if (b >= batch) return;
  T* const own = quotients != nullptr ? quotients + b * n : nullptr;
  if (overlaps != nullptr) deflate_by_warp(n, overlaps + b * n * std::int64_t(n), n, own);
  const int kept = rank_by_warp(policy, n, values + b * n, own);
  if (threadIdx.x % 32 == 0) rank[b] = kept;
}

template <typename T>
void queue_rank(const PlainRankPolicy& policy, Matrices<const T> vectors, const T* values,
                const T* overlaps, T* quotients, std::int64_t* rank, const Stream& stream) {
  const std::int64_t blocks = (vectors.batch + kWarpsPerBlock - 1) / kWarpsPerBlock;
  rank_kernel<<<unsigned(blocks), 32 * kWarpsPerBlock, 0, native(stream)>>>(
      policy, vectors.batch, int(vectors.n), values, overlaps, quotients, rank);
  check_launch(kSpectralRank);
}

template <typename T, int N>
using RankMemory = small::Storage<T, N, 4, 2>;

template <typename T, int N>
__global__ void __launch_bounds__(small::SmallTeam<T, N>::kBlockThreads,
                                  small::SmallTeam<T, N>::kBlocks)
    small_rank_kernel(PlainRankPolicy policy, Matrices<const T> matrices, const T* values,
                      Matrices<const T> vectors, std::int64_t* rank) {
  const small::SmallTeam<T, N> team(vectors.batch, vectors.n);
  auto& shared = small::storage<RankMemory<T, N>>(team);
  T *const v = shared.matrix[0], *const u = shared.matrix[1], *const m = shared.matrix[2],
           *const p = shared.matrix[3], *const l = shared.vector[0], *const q = shared.vector[1];
  small::Fetched<T, N> basis = small::fetch(team, vectors),
                       matrix = small::fetch_lower(team, matrices);
  if (team.thread() < team.n) l[team.thread()] = values[team.index * team.n + team.thread()];
  small::put(team, basis, v);
  small::put_transposed(team, basis, u);
  small::put_lower(team, matrix, m);
  team.sync();
  small::rayleigh_quotients(team, m, v, u, p, q);
  if (team.thread() >= 32) return;
  const int kept = rank_by_warp(policy, team.n, l, q);
  if (team.exists && team.thread() == 0) rank[team.index] = kept;
}

/// quotients_i = v_i^T M v_i, from the product M V.
template <typename T>
struct PlainQuotient {
  Matrices<const T> vectors, product;
  T* quotients;
  __device__ void operator()(std::int64_t b, std::int64_t, std::int64_t i) const {
    T sum = 0;
    for (std::int64_t r = 0; r < vectors.n; ++r)
      sum += vectors[b][r * vectors.row_stride + i] * product[b][r * product.row_stride + i];
    quotients[b * vectors.n + i] = sum;
  }
};

template <typename T>
void large_rank(const PlainRankPolicy& policy, Matrices<const T> matrices, const T* values,
                Matrices<const T> vectors, std::int64_t* rank, const Stream& stream) {
  using namespace large;
  const std::int64_t batch = vectors.batch, n = vectors.n;
  Scratch<T> memory(kSpectralRank, stream, batch * n * n);
  Scratch<T> quotients(kSpectralRank, stream, batch * n);
  const auto product = contiguous<T>(memory, batch, n);
  multiply(kSpectralRank, stream, FromLower<T>{matrices}, Plain<T>{vectors}, product);
  for_each_value(kSpectralRank, stream, batch, n, PlainQuotient<T>{vectors, product, quotients});
  multiply<true>(kSpectralRank, stream, Transposed<T>{vectors}, Plain<T>{vectors}, product);
  queue_rank<T>(policy, vectors, values, product.data, quotients, rank, stream);
}

}  // namespace keel::cuda
