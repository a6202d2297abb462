#pragma once

// Matrices of up to 64 x 64 in shared memory whose products are split over the blocks of a cluster.
// Every block holds whole left operands and computes a panel of columns of each product. Numbers
// beyond n are zero, so sums can run to the next multiple of eight.

#include <cstdint>

#include "cuda/memory.cuh"
#include "cuda/threads.cuh"
#include "keel/matrices.h"

namespace keel::cuda::small {

/// The number of threads that compute a panel, each a tile of two rows and four columns.
template <int N, int PARTS>
inline constexpr int kPanelThreads = N / 2 * (N / PARTS / 4);

/// The threads of one panel of a matrix that PARTS blocks share: a warp or a whole block. Surplus
/// teams of a block repeat the last matrix and store nothing.
template <typename T, int N, int PARTS>
struct PanelTeam : MatrixThreads<kPanelThreads<N, PARTS>> {
  using MatrixThreads<kPanelThreads<N, PARTS>>::thread;
  using MatrixThreads<kPanelThreads<N, PARTS>>::sync, MatrixThreads<kPanelThreads<N, PARTS>>::kSize;
  static constexpr int kParts = PARTS;
  static constexpr int kWidth = N / kParts;
  static constexpr int kTeams = kSize == 32 ? 4 : 1;  // to a block
  static constexpr int kBlockThreads = kSize * kTeams;
  // Rows start in different banks and stay aligned.
  static constexpr int kStride = N + int(16 / sizeof(T));
  // A panel that is the whole matrix is stored like a left operand, so one copy can be both.
  static constexpr int kPanelStride = kParts == 1 ? kStride : kWidth;

  int n;
  std::int64_t index;  ///< of the matrix
  bool exists;         ///< whether this team stores the result
  int first;           ///< column of the panel
  int half;            ///< which half of a sum this thread computes
  int top, left;       ///< of the thread's tile

  __device__ explicit PanelTeam(std::int64_t batch, std::int64_t size) : n(int(size)) {
    this->index_in_team = int(threadIdx.x) % kSize;
    index = std::int64_t(blockIdx.x) / kParts * kTeams + int(threadIdx.x) / kSize;
    exists = index < batch;
    if (!exists) index = batch - 1;
    first = int(blockIdx.x) % kParts * kWidth;
    // A warp computes 16 x 16, and each half of it reads four places of 16 bytes at a time. That
    // takes one pass if neighbouring threads read the same place, or threads two apart do.
    constexpr int kAcross = kWidth / 16;
    const int warp = thread() / 32, lane = thread() % 32;
    half = lane / 16;
    top = warp / kAcross * 16 + (lane / 2 % 2 + lane / 8 % 2 * 2) * 4 + half * 2;
    // Every other row of warps is shifted by two: those below the diagonal, which have more to do,
    // are then spread over the schedulers, each of which has every fourth warp.
    left = (warp + warp / kAcross * 2) % kAcross * 16 + (lane % 2 + lane / 4 % 2 * 2) * 4;
  }

  /// The place of an entry of a left operand. Of 16 rows every fourth is stored next to each other:
  /// the rows that the threads of a warp read together are in different banks.
  __device__ static int place(int i, int j) { return place_of_row(i) * kStride + j; }
  /// The place of an entry of a panel, with j counted from its first column.
  __device__ static int panel_place(int i, int j) { return place_of_row(i) * kPanelStride + j; }

  /// The number of blocks of a kernel with one team per panel.
  static unsigned blocks_for(std::int64_t batch) {
    return unsigned((batch + kTeams - 1) / kTeams * kParts);
  }

  /// The barrier of all blocks that share the matrix, in two halves.
  __device__ static void arrive() {
#if __CUDA_ARCH__ >= 900
    if constexpr (kParts > 1) __cluster_barrier_arrive();
#endif
  }
  __device__ void wait() const {
#if __CUDA_ARCH__ >= 900
    if constexpr (kParts > 1) return __cluster_barrier_wait();
#endif
    sync();
  }

  /// The same place in the memory of the block that owns this column.
  __device__ static T* in_block_of(int column, T* place) {
#if __CUDA_ARCH__ >= 900
    if constexpr (kParts > 1)
      return static_cast<T*>(__cluster_map_shared_rank(place, unsigned(column / kWidth)));
#endif
    return place;
  }

 private:
  __device__ static int place_of_row(int i) { return i / 16 * 16 + i % 4 * 4 + i / 4 % 4; }
};

/// One thread's part of a panel.
template <typename T>
struct PanelTile {
  static constexpr int kRows = 2;
  Pack<T> row[kRows];

  /// Calls body(entry, i, j) for each, with j counted from the panel's first column.
  template <typename SmallTeam, typename Body>
  __device__ __forceinline__ void for_each(const SmallTeam& team, const Body& body) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int s = 0; s < 4; ++s) body(row[r].at[s], team.top + r, team.left + s);
  }
};

/// The panel of a b, given a and the panel of b. Two threads compute two tiles, half of every sum
/// each, because a larger tile needs fewer loads. Not inlined: a kernel runs each of its products
/// once, and would wait for the instructions of every copy.
template <typename T, int N, int PARTS>
__device__ __noinline__ PanelTile<T> multiply(PanelTeam<T, N, PARTS> team, const T* a, const T* b) {
  using S = PanelTeam<T, N, PARTS>;
  Pack<T> sum[4] = {};
  a += S::place(team.top - team.half * 2, team.half * 4);
  b += S::panel_place(team.half * 4, team.left);
#pragma unroll 4
  for (int k = 0; k < team.n; k += 8) {
    Pack<T> left[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) left[r] = pack_at(a + S::place(r, k));
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const Pack<T> right = pack_at(b + S::panel_place(k + step, 0));
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int s = 0; s < 4; ++s) sum[r].at[s] += left[r].at[step] * right.at[s];
    }
  }
  PanelTile<T> tile;
#pragma unroll
  for (int r = 0; r < tile.kRows; ++r)
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const T low = sum[r].at[s], high = sum[tile.kRows + r].at[s];
      tile.row[r].at[s] = (team.half == 0 ? low : high) +
                          __shfl_xor_sync(0xffffffffu, team.half == 0 ? high : low, 16);
    }
  return tile;
}

template <typename T, int N, int PARTS>
__device__ __forceinline__ PanelTile<T> tile_of(const PanelTeam<T, N, PARTS>& team,
                                                const T* panel) {
  using S = PanelTeam<T, N, PARTS>;
  panel += S::panel_place(team.top, team.left);
  return {pack_at(panel), pack_at(panel + S::panel_place(1, 0))};
}

/// op(x, y) of two tiles, entry by entry.
template <typename T, typename Op>
__device__ __forceinline__ PanelTile<T> combined(PanelTile<T> x, const PanelTile<T>& y,
                                                 const Op& op) {
#pragma unroll
  for (int r = 0; r < PanelTile<T>::kRows; ++r)
#pragma unroll
    for (int s = 0; s < 4; ++s) x.row[r].at[s] = op(x.row[r].at[s], y.row[r].at[s]);
  return x;
}

/// Call sync() before reading what it wrote.
template <typename T, int N, int PARTS>
__device__ __forceinline__ void put(const PanelTeam<T, N, PARTS>& team, const PanelTile<T>& tile,
                                    T* panel) {
  using S = PanelTeam<T, N, PARTS>;
  panel += S::panel_place(team.top, team.left);
  pack_at(panel) = tile.row[0];
  pack_at(panel + S::panel_place(1, 0)) = tile.row[1];
}

/// Stores the tile as a part of the transposed matrix, in the panel to which it belongs there.
template <typename T, int N, int PARTS>
__device__ __forceinline__ void put_transposed(const PanelTeam<T, N, PARTS>& team,
                                               const PanelTile<T>& tile, T* panel) {
  using S = PanelTeam<T, N, PARTS>;
  panel += S::panel_place(team.first + team.left, team.top % S::kWidth);
#pragma unroll
  for (int s = 0; s < 4; ++s)
    pack_at<2>(panel + S::panel_place(s, 0)) = {tile.row[0].at[s], tile.row[1].at[s]};
}

/// One thread's entries of a matrix in global memory, or of the rows with the indices of the panel's
/// columns. Adjacent threads read adjacent columns. Numbers beyond n are zero.
template <typename T, int N, int PARTS, bool OWN>
struct FetchedRows {
  using S = PanelTeam<T, N, PARTS>;
  static constexpr int kAcross = N < 32 ? N : 32;  // threads
  static constexpr int kDown = S::kSize / kAcross;
  static constexpr int kRows = (OWN ? S::kWidth : N) / kDown, kColumns = N / kAcross;
  T entry[kRows][kColumns];

  __device__ FetchedRows(const S& team, Matrices<const T> matrices) {
    const T* from = matrices[team.index] + row(team, 0) * matrices.row_stride + column(team, 0);
#pragma unroll
    for (int r = 0; r < kRows; ++r, from += kDown * matrices.row_stride)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        entry[r][c] = row(team, r) < team.n && column(team, c) < team.n ? from[c * kAcross] : T(0);
  }

  /// Calls body(entry, i, j) for each, including those beyond n.
  template <typename Body>
  __device__ __forceinline__ void for_each(const S& team, const Body& body) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) body(entry[r][c], row(team, r), column(team, c));
  }
  __device__ static int row(const S& team, int r) {
    return (OWN ? team.first : 0) + team.thread() / kAcross + r * kDown;
  }
  __device__ static int column(const S& team, int c) {
    return team.thread() % kAcross + c * kAcross;
  }
};

}  // namespace keel::cuda::small
