#pragma once

// svd with one block, or one cluster of blocks, per matrix. Compiled in one file per type, in parallel.

#include <algorithm>
#include <limits>
#include <type_traits>

#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "cuda/svd/jacobi/math.h"
#include "cuda/svd/paths.h"
#include "cuda/threads.cuh"

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::svd";

/// For columns of any length.
using WarpsOfABlock = BlockTeam<32, 4, false>;

template <typename T>
struct Arguments {
  Rectangles<const T> matrices;
  T* values;
  Rectangles<T> left, right;
  SvdStatus* status;
  const bool* unsolved;  ///< null, or which matrices must still be solved
  __device__ bool has(std::int64_t b) const { return unsolved == nullptr || unsolved[b]; }
};

/// Where the parts of a block's memory are: in shared memory as far as they fit, the rest in global memory.
template <typename T>
struct Place {
  SvdLayout<T> layout;
  bool rotated_shared, columns_shared, left_shared;
  T* scratch;  ///< `scratch_size` numbers per block

  explicit Place(const SvdLayout<T>& sizes) : layout(sizes), scratch(nullptr) {
    std::int64_t bytes = layout.base_bytes();
    const std::int64_t most = shared_memory_of_a_block() - kSvdStaticBytes;
    const auto fits = [&](std::int64_t numbers) {
      const std::int64_t more = numbers * std::int64_t(sizeof(T));
      if (bytes + more > most) return false;
      bytes += more;
      return true;
    };
    rotated_shared = jacobi_fits_in_block(layout, this_card()) && fits(layout.rotated());
    columns_shared = rotated_shared && fits(layout.columns());
    left_shared = columns_shared && fits(layout.left());
    shared_bytes = int(bytes);
  }

  __host__ __device__ std::int64_t scratch_size() const {
    return (rotated_shared ? 0 : layout.rotated()) + (columns_shared ? 0 : layout.columns()) +
           (left_shared ? 0 : layout.left());
  }
  int shared_bytes = 0;
};

/// Solves matrix b of the batch and writes its results.
template <typename T, typename Team, typename LongTeam>
__device__ void solve_one(const Team& team, const LongTeam& long_team, const Arguments<T>& a,
                          std::int64_t b, const SvdLayout<T>& layout, const SvdMemory<T>& parts) {
  const bool wide = a.matrices.rows < a.matrices.columns;
  const int k = layout.n;
  const SvdSource<T> source{a.matrices[b], wide ? 1 : a.matrices.row_stride,
                            wide ? a.matrices.row_stride : 1};
  TeamSvd<T, Team, LongTeam> solver(team, long_team, layout, parts);
  T *const values = a.values + b * k, *const left = a.left[b], *const right = a.right[b];
  const std::int64_t down = a.left.row_stride, across = a.right.row_stride;
  const bool finite = solver.solve(source);
  if (finite) {
    solver.give(
        !wide, [&](int c, T x) { values[c] = x; },
        [&](int i, int c, T x) { *(wide ? right + c * across + i : left + i * down + c) = x; },
        [&](int c, int j, T x) { *(wide ? left + j * down + c : right + c * across + j) = x; });
  } else {
    constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
    const int rows = int(a.matrices.rows), columns = int(a.matrices.columns);
    for (int c = team.thread(); c < k; c += team.size()) values[c] = kNaN;
    for (int at = team.thread(); at < rows * k; at += team.size())
      left[at / k * down + at % k] = kNaN;
    for (int at = team.thread(); at < k * columns; at += team.size())
      right[at / columns * across + at % columns] = kNaN;
  }
  if (a.status != nullptr && team.thread() == 0)
    a.status[b] = !finite              ? SvdStatus::not_finite
                  : solver.converged() ? SvdStatus::converged
                                       : SvdStatus::not_converged;
  team.sync();  // before the next matrix uses the memory
}

template <typename T, typename Team, typename LongTeam, bool ROTATED_SHARED, int THREADS,
          int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) svd_kernel(Arguments<T> a, Place<T> place) {
  extern __shared__ __align__(16) unsigned char memory[];
  const SvdLayout<T>& layout = place.layout;
  T* const numbers = reinterpret_cast<T*>(memory);
  int* const places = reinterpret_cast<int*>(numbers + layout.numbers());
  T* shared = reinterpret_cast<T*>(places + (layout.places() + 3) / 4 * 4);
  T* global = place.scratch + blockIdx.x * place.scratch_size();
  T* rotated = shared;
  if constexpr (ROTATED_SHARED) {
    shared += layout.rotated();
  } else {
    rotated = global;
    global += layout.rotated();
  }
  T* const columns = place.columns_shared ? shared : global;
  (place.columns_shared ? shared : global) += layout.columns();
  T* const long_left = place.left_shared ? shared : global;

  const Team team{};
  const LongTeam long_team{};
  const SvdMemory<T> parts{rotated, columns, long_left, numbers, places};
  await_previous();
  for (std::int64_t b = blockIdx.x; b < a.matrices.batch; b += gridDim.x)
    if (a.has(b)) solve_one(team, long_team, a, b, layout, parts);
}

constexpr int kClusterThreads = 512;

/// The global memory of a cluster, in numbers.
template <typename T>
__host__ __device__ std::int64_t cluster_scratch(const SvdLayout<T>& layout) {
  const std::int64_t ints = layout.places() + ClusterTeam::kBlocks;
  return layout.rotated() + layout.columns() + layout.left() + layout.numbers() +
         SvdLayout<T>::packed(int(ints));  // an int is no larger than a number
}

template <typename T>
__global__ void __launch_bounds__(kClusterThreads)
    svd_cluster_kernel(Arguments<T> a, SvdLayout<T> layout, T* scratch) {
  const int cluster = int(blockIdx.x) / ClusterTeam::kBlocks,
            clusters = int(gridDim.x) / ClusterTeam::kBlocks;
  T* const rotated = scratch + cluster * cluster_scratch(layout);
  T *const columns = rotated + layout.rotated(), *const left = columns + layout.columns(),
           *const numbers = left + layout.left();
  int* const places = reinterpret_cast<int*>(numbers + layout.numbers());
  const ClusterTeam team(places + layout.places());
  const SvdMemory<T> parts{rotated, columns, left, numbers, places};
  for (std::int64_t b = cluster; b < a.matrices.batch; b += clusters)
    if (a.has(b)) solve_one(team, team, a, b, layout, parts);
}

template <typename T, typename Team, typename LongTeam, bool ROTATED_SHARED, int THREADS,
          int BLOCKS>
void queue_kernel(const Arguments<T>& a, Place<T> place, const Stream& stream) {
  const SvdLayout<T>& layout = place.layout;
  // As many groups as there are pairs of columns. For QR of a taller matrix as many as columns, if they are long.
  int threads = (layout.n + 1) / 2 * Team::kLanes;
  if (!std::is_same_v<Team, LongTeam>)
    threads = std::max(threads, std::min(layout.n * LongTeam::kLanes, layout.m * layout.n / 16));
  threads = std::clamp((threads + 31) / 32 * 32, 32, THREADS);
  const std::int64_t size = place.scratch_size();
  // Blocks that need global scratch process several matrices one after another.
  const std::int64_t blocks =
      size == 0 ? a.matrices.batch : std::min(a.matrices.batch, 4 * multiprocessors());
  const Scratch<T> scratch(kName, stream, blocks * size);
  place.scratch = scratch;
  const bool after_others =
      a.unsolved != nullptr && size == 0;  // directly after the launch that left them
  launch(kName, svd_kernel<T, Team, LongTeam, ROTATED_SHARED, THREADS, BLOCKS>,
         {.blocks = unsigned(blocks),
          .threads = unsigned(threads),
          .bytes = place.shared_bytes,
          .early = after_others},
         stream, a, place);
}

/// Team rotates the pairs. If its groups cannot hold columns of m entries, whole warps do the QR.
template <typename T, typename Team, int THREADS, int BLOCKS>
void queue(const Arguments<T>& a, const Place<T>& place, const Stream& stream) {
  if (place.layout.m <= Team::kLanes * Team::kHeld * SvdPack<T>::kCount)
    return queue_kernel<T, Team, Team, true, THREADS, BLOCKS>(a, place, stream);
  queue_kernel<T, Team, WarpsOfABlock, true, 512, 1>(a, place, stream);
}

/// If shared memory is too small: solves a few matrices at a time with the whole GPU, in its L2 cache.
template <typename T>
void queue_clusters(const Arguments<T>& a, const SvdLayout<T>& layout, const Stream& stream) {
  constexpr int kBlocks = ClusterTeam::kBlocks;
  const int groups = layout.m >= 2 * layout.n ? layout.n : (layout.n + 1) / 2;
  const int threads = std::clamp((groups + kBlocks - 1) / kBlocks * 32, 32, kClusterThreads);
  const std::int64_t clusters =
      std::min(a.matrices.batch, std::max<std::int64_t>(1, multiprocessors() / kBlocks));
  const Scratch<T> scratch(kName, stream, clusters * cluster_scratch(layout));
  launch(kName, svd_cluster_kernel<T>,
         {.blocks = unsigned(clusters * kBlocks), .threads = unsigned(threads), .cluster = kBlocks},
         stream, a, layout, scratch);
}

}  // namespace

template <typename T>
void svd_jacobi(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
                SvdStatus* status, const bool* unsolved, const Stream& stream) {
  const std::int64_t m = std::max(matrices.rows, matrices.columns),
                     n = std::min(matrices.rows, matrices.columns);
  const Arguments<T> arguments{matrices, values, left, right, status, unsolved};
  const Place<T> place{SvdLayout<T>(int(m), int(n))};
  if (!place.rotated_shared && runs_in_clusters<svd_cluster_kernel<T>>())
    return queue_clusters(arguments, place.layout, stream);
  if (!place.rotated_shared)
    return queue_kernel<T, WarpsOfABlock, WarpsOfABlock, false, 512, 1>(arguments, place, stream);
  by_jacobi_size<T>(n, [&](auto size) {
    constexpr int N = decltype(size)::value, kWords = int(sizeof(T)) / 4;
    constexpr int kLanes = N <= 16   ? 4
                           : N <= 64 ? 8
                                     : 16,
                  kHeld = N > 128  ? 4
                          : N > 64 ? 2
                          : N > 32 ? 2 * kWords
                                   : kWords;
    constexpr int kThreads = N <= 32   ? 128
                             : N <= 64 ? 256
                                       : 512,
                  kBlocks = N <= 32   ? 6
                            : N <= 64 ? 2
                                      : 1;
    queue<T, BlockTeam<kLanes, kHeld>, kThreads, kBlocks>(arguments, place, stream);
  });
}

}  // namespace keel::cuda
