#pragma once

// Matrices of up to 64 x 64 in shared memory, and the threads that share one. The functions end
// with a barrier of those threads, so they can be called one after another. Exceptions are `put`
// and `for_each_entry`: call sync() before reading what they wrote.

#include <cstdint>
#include <type_traits>

#include "cuda/launch/launch.h"
#include "cuda/memory.cuh"
#include "cuda/plan.h"
#include "cuda/threads.cuh"
#include "keel/matrices.h"

namespace keel::cuda::small {

/// (a + b) / 2, independent of the order of a and b to the last bit: no fused multiply-add.
__device__ __forceinline__ float mean(float a, float b) { return __fadd_rn(0.5f * a, 0.5f * b); }
__device__ __forceinline__ double mean(double a, double b) { return __dadd_rn(0.5 * a, 0.5 * b); }

/// The part of a product that one thread computes.
inline constexpr int kTileColumns = 4;
template <int N>
inline constexpr int kTileRows = N == 64 ? 4 : 2;
template <int N>
inline constexpr int kTeamThreads = N / kTileRows<N>*(N / kTileColumns);  // 32, 128, 256

/// The threads of one n x n matrix, n <= N: a warp or a whole block. Each thread owns a tile of
/// every product. At the end of the batch, surplus teams of a block repeat the last matrix and
/// store nothing.
template <typename T, int N>
struct SmallTeam : MatrixThreads<kTeamThreads<N>> {
  using MatrixThreads<kTeamThreads<N>>::thread, MatrixThreads<kTeamThreads<N>>::kSize;
  static constexpr int kRows = kTileRows<N>, kColumns = kTileColumns;
  static constexpr int kTilesAcross = N / kColumns;
  static constexpr int kWarpAcross = kTilesAcross < 8 ? kTilesAcross : 8;
  static constexpr int kTeams = kSize == 32 ? 4 : 1;  // to a block
  static constexpr int kBlockThreads = kSize * kTeams;
  static constexpr int kBlocks = sizeof(T) == 4 ? 2 : 1;  // per multiprocessor, at least
  // One more vector per row: rows start in different banks and stay aligned.
  static constexpr int kStride = N + int(16 / sizeof(T));
  static_assert(kSize % 32 == 0 && kSize >= N);

  int n;
  std::int64_t index;  ///< of the matrix
  bool exists;         ///< whether this team stores the result

  __device__ explicit SmallTeam(std::int64_t batch, std::int64_t size) : n(int(size)) {
    this->index_in_team = int(threadIdx.x) % kSize;
    index = std::int64_t(blockIdx.x) * kTeams + int(threadIdx.x) / kSize;
    exists = index < batch;
    if (!exists) index = batch - 1;
  }

  /// The thread's tile. A warp has at most eight tiles across. Threads next to each other read the
  /// same columns, those two apart the same rows: half a warp then reads 16 bytes each in one pass.
  __device__ int tile_row() const {
    return thread() / 32 / (kTilesAcross / kWarpAcross) * (32 / kWarpAcross) + thread() % 2 +
           thread() % 32 / (2 * kWarpAcross) * 2;
  }
  __device__ int tile_column() const {
    return thread() / 32 % (kTilesAcross / kWarpAcross) * kWarpAcross + thread() / 2 % kWarpAcross;
  }

  /// Calls body(i, j) for the entries of the matrix, adjacent threads on adjacent columns. No
  /// barrier.
  template <int UNROLL, typename Body>
  __device__ __forceinline__ void for_each_entry(const Body& body) const {
    const int j = thread() % N;
    if (j >= n) return;
#pragma unroll UNROLL
    for (int i = thread() / N; i < n; i += kSize / N) body(i, j);
  }
};

/// The shared memory of one team.
template <typename T, int N, int MATRICES, int VECTORS>
struct alignas(16) Storage {
  T matrix[MATRICES][N * SmallTeam<T, N>::kStride];
  T vector[VECTORS][N];
};

template <typename Own, typename Threads>
__device__ __forceinline__ Own& storage(const Threads&) {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<Own*>(memory)[int(threadIdx.x) / Threads::kSize];
}

/// c = a b over the first `depth` columns of a. c must be neither a nor b. Entries beyond n in a
/// row or column are computed too but meaningless; the inner index stays below `depth`.
template <typename T, int N>
__device__ __forceinline__ void multiply(const SmallTeam<T, N>& team, int depth, const T* a,
                                         const T* b, T* c) {
  using S = SmallTeam<T, N>;
  const int i = team.tile_row() * S::kRows, j = team.tile_column() * S::kColumns;
  if (i < team.n && j < team.n) {
    T sum[S::kRows][4] = {};
    a += i * S::kStride;
    b += j;
    int k = 0;
#pragma unroll 2
    for (; k + 4 <= depth; k += 4) {
      Pack<T> left[S::kRows];
#pragma unroll
      for (int r = 0; r < S::kRows; ++r) left[r] = pack_at(a + r * S::kStride + k);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const Pack<T> right = pack_at(b + (k + step) * S::kStride);
#pragma unroll
        for (int r = 0; r < S::kRows; ++r)
#pragma unroll
          for (int s = 0; s < 4; ++s) sum[r][s] += left[r].at[step] * right.at[s];
      }
    }
    for (; k < depth; ++k) {
      const Pack<T> right = pack_at(b + k * S::kStride);
#pragma unroll
      for (int r = 0; r < S::kRows; ++r)
#pragma unroll
        for (int s = 0; s < 4; ++s) sum[r][s] += a[r * S::kStride + k] * right.at[s];
    }
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      Pack<T>& to = pack_at(c + (i + r) * S::kStride + j);
#pragma unroll
      for (int s = 0; s < 4; ++s) to.at[s] = sum[r][s];
    }
  }
  team.sync();
}

/// One thread's entries of a matrix between global and shared memory. They are held in registers,
/// so that several matrices can be loaded at once.
template <typename T, int N>
struct Fetched {
  using S = SmallTeam<T, N>;
  static constexpr int kStep = S::kSize / N;
  T entry[N / kStep];

  /// Calls body(entry, i, j) for each.
  template <typename Body>
  __device__ __forceinline__ void for_each(const S& team, const Body& body) {
    const int j = team.thread() % N;
#pragma unroll
    for (int e = 0; e < N / kStep; ++e) {
      const int i = team.thread() / N + e * kStep;
      if (i < team.n && j < team.n) body(entry[e], i, j);
    }
  }
};

template <typename T, int N>
__device__ __forceinline__ Fetched<T, N> fetch(const SmallTeam<T, N>& team,
                                               Matrices<const T> from) {
  const T* const source = from[team.index];
  Fetched<T, N> all;
  all.for_each(team, [&](T& entry, int i, int j) { entry = source[i * from.row_stride + j]; });
  return all;
}

/// Reads the lower triangle only.
template <typename T, int N>
__device__ __forceinline__ Fetched<T, N> fetch_lower(const SmallTeam<T, N>& team,
                                                     Matrices<const T> from) {
  const T* const source = from[team.index];
  Fetched<T, N> all;
  all.for_each(team, [&](T& entry, int i, int j) {
    if (j <= i) entry = source[i * from.row_stride + j];
  });
  return all;
}

template <typename T, int N>
__device__ __forceinline__ void put(const SmallTeam<T, N>& team, Fetched<T, N>& from, T* to) {
  from.for_each(team, [&](T entry, int i, int j) { to[i * SmallTeam<T, N>::kStride + j] = entry; });
}

template <typename T, int N>
__device__ __forceinline__ void put_transposed(const SmallTeam<T, N>& team, Fetched<T, N>& from,
                                               T* to) {
  from.for_each(team, [&](T entry, int i, int j) { to[j * SmallTeam<T, N>::kStride + i] = entry; });
}

/// Stores the symmetric matrix whose lower triangle was fetched.
template <typename T, int N>
__device__ __forceinline__ void put_lower(const SmallTeam<T, N>& team, Fetched<T, N>& from, T* to) {
  constexpr int kStride = SmallTeam<T, N>::kStride;
  from.for_each(team, [&](T entry, int i, int j) {
    if (j <= i) to[i * kStride + j] = to[j * kStride + i] = entry;
  });
}

/// a <- (a + a^T) / 2.
template <typename T, int N>
__device__ void symmetrise(const SmallTeam<T, N>& team, T* a) {
  constexpr int kStride = SmallTeam<T, N>::kStride;
  team.template for_each_entry<4>([&](int i, int j) {
    if (j < i)
      a[i * kStride + j] = a[j * kStride + i] = mean(a[i * kStride + j], a[j * kStride + i]);
  });
  team.sync();
}

/// Stores (a + a^T) / 2 in global memory.
template <typename T, int N>
__device__ void store_symmetric(const SmallTeam<T, N>& team, const T* a, Matrices<T> to) {
  constexpr int kStride = SmallTeam<T, N>::kStride;
  if (!team.exists) return;
  T* const target = to[team.index];
  team.template for_each_entry<4>([&](int i, int j) {
    target[i * to.row_stride + j] =
        i == j ? a[i * kStride + i] : mean(a[i * kStride + j], a[j * kStride + i]);
  });
}

/// c <- V^T sym(c) V, with v = V and u = V^T. p holds the intermediate product.
template <typename T, int N>
__device__ void into_basis(const SmallTeam<T, N>& team, const T* v, const T* u, T* c, T* p) {
  symmetrise(team, c);
  multiply(team, team.n, c, v, p);
  multiply(team, team.n, u, p, c);
}

/// a <- V a V^T. p holds the intermediate product.
template <typename T, int N>
__device__ void out_of_basis(const SmallTeam<T, N>& team, const T* v, const T* u, T* a, T* p) {
  multiply(team, team.n, a, u, p);
  multiply(team, team.n, v, p, a);
}

template <typename T, int N, typename Own>
inline constexpr int kBytesOf = int(sizeof(Own)) * SmallTeam<T, N>::kTeams;

/// Whether a block of this device can hold matrices of this size, with a MEMORY for each.
template <typename T, template <typename, int> typename MEMORY>
bool fits(std::int64_t n) {
  return n <= kLargestSmall && by_small_size(n, [](auto size) {
           constexpr int N = decltype(size)::value;
           return fits_a_block(kBytesOf<T, N, MEMORY<T, N>>);
         });
}

/// The number of blocks of a kernel with one SmallTeam<T, N> per matrix.
template <typename T, int N>
unsigned blocks_for(std::int64_t batch) {
  return unsigned((batch + SmallTeam<T, N>::kTeams - 1) / SmallTeam<T, N>::kTeams);
}

/// Launches such a kernel, with an `Own` of shared memory for each team.
template <typename T, int N, typename Own, typename... Parameters>
void launch(const char* operation, void (*kernel)(Parameters...), std::int64_t batch,
            const Stream& stream, std::type_identity_t<Parameters>... arguments) {
  constexpr int bytes = kBytesOf<T, N, Own>;
  static_assert(bytes <= 227 * 1024);
  cuda::launch(operation, kernel,
               {.blocks = blocks_for<T, N>(batch),
                .threads = SmallTeam<T, N>::kBlockThreads,
                .bytes = bytes},
               stream, arguments...);
}

}  // namespace keel::cuda::small
