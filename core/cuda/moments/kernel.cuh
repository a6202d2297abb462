#pragma once

// Sums of products over samples. A block takes a chunk of the samples of one slab (or of a pair of
// slabs), tile by tile. A thread keeps R x R sums of products in registers, over its share of the
// rows of every tile. The threads' sums are folded (added in float64, in a fixed order) into the
// chunk's set of sums.
//
// Error: there are at most kFold samples between two folds, and in float32 at least four threads
// share them. So a sum in registers has n <= kFold / 4 terms and an error of at most n u sum |left
// right| (u = 2^-24), typically sqrt(n) u. Everything after that is float64.

#include "cuda/activations/stage.cuh"
#include "cuda/moments/shift.cuh"
#include "keel/matrices.h"

namespace keel::cuda {

inline constexpr int kMomentsThreads = 256;
inline constexpr int kFold = 4096;  // samples

/// Samples of a tile. The tiles of both sides take 32 KB together.
template <typename A, bool SAME>
inline constexpr int kMomentsSamples = 32768 / int(sizeof(A)) / kSlots / (SAME ? 1 : 2);

/// Blocks per multiprocessor.
template <typename A>
constexpr int blocks_at_once(int R) {
  return sizeof(A) == 4 && R == 4 ? 3 : 2;
}

template <typename T>
struct MomentsTask {
  using A = Accumulator<T>;
  Source<T> left, right;
  Slabs slabs;
  const A* center = nullptr;     ///< of the right side, if there is no shift; null: zeros
  A* shift = nullptr;            ///< if not null: subtracted from both sides, and written here
  Matrices<const A> covariance;  ///< of the right side about its center; null if not known
  bool lower = false;            ///< only pairs of parts on or below the diagonal
  int pairs = 0;                 ///< of slabs
  int tiles = 0;                 ///< of R x R products that make up a pair
  int teams = 0;                 ///< of `tiles` threads; each takes some of the rows
  int rows = 0;                  ///< samples of a tile, a multiple of 8
  int chunk = 0;                 ///< samples of a block, a multiple of 8
  std::int64_t chunks = 0;
  double* sets = nullptr;  ///< one for each chunk: channels x group_size products, channels sums
  std::int64_t set_size = 0;
};

/// The two slabs of a pair.
template <typename T>
__device__ Cell slabs_of(const MomentsTask<T>& task, int pair) {
  const int parts = task.slabs.parts;
  if (parts == 1) return {pair, pair};
  const int each = task.lower ? parts * (parts + 1) / 2 : parts * parts;
  const int group = pair / each, index = pair % each;
  const Cell cell = task.lower ? cell_of_triangle(index) : Cell{index / parts, index % parts};
  return {group * parts + cell.row, group * parts + cell.column};
}

/// The position of a tile of products, in units of R slots. If both sides are the same, it is on or
/// below the diagonal.
template <int R, bool SAME>
__device__ Cell product_tile(const Slabs& slabs, int index) {
  const int across = slabs.padded / R;
  const int each = SAME ? across * (across + 1) / 2 : across * across;
  const int group = index / each, within = index % each;
  const Cell cell = SAME ? cell_of_triangle(within) : Cell{within / across, within % across};
  return {group * across + cell.row, group * across + cell.column};
}

template <int R, typename A>
struct Products {
  static constexpr int kPacks = R / kPack;
  A at[R][R] = {};

  /// Adds the products of four rows of two tiles. `left` and `right` are the positions of the
  /// packs, and `swizzle` is the rows' permutation (TilePlaces).
  __device__ void add(const A* left_rows, const A* right_rows, int left, int right, int swizzle) {
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      A l[R], r[R];
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const auto& from_left = *reinterpret_cast<const Pack<A>*>(
            left_rows + row * kSlots + ((left + p * 8) ^ swizzle) * kPack);
        const auto& from_right = *reinterpret_cast<const Pack<A>*>(
            right_rows + row * kSlots + ((right + p * 8) ^ swizzle) * kPack);
#pragma unroll
        for (int v = 0; v < kPack; ++v) {
          l[p * kPack + v] = from_left.at[v];
          r[p * kPack + v] = from_right.at[v];
        }
      }
#pragma unroll
      for (int i = 0; i < R; ++i)
#pragma unroll
        for (int j = 0; j < R; ++j) at[i][j] += l[i] * r[j];
    }
  }
};

template <typename T, int R, bool SAME>
struct MomentsBlock {
  using A = Accumulator<T>;
  static constexpr int kThreads = kMomentsThreads;
  static constexpr int kSamples = kMomentsSamples<A, SAME>;
  static constexpr int kSides = SAME ? 1 : 2;
  static constexpr int kTile = kSamples * kSlots;  // numbers
  static constexpr int kPacksOfRow = kSlots / kPack;
  static constexpr int kRowsAtOnce = kThreads / kPacksOfRow;
  using Places = TilePlaces<kSlots, R == 8>;
  using Loads = Stage<T, kThreads, kSamples, R == 8 ? 1 : 2>;
  static constexpr int kTileBytes = kSides * kTile * int(sizeof(A));
  static constexpr int kBytes = kTileBytes + kSides * Loads::kRawBytes;
  static_assert(kThreads * int(sizeof(SampledChannel)) <= kTileBytes);

  const MomentsTask<T>& task;
  const int (*channel)[kSlots];  ///< of left and right
  A* tiles;
  double* set;
  bool with_sum;

  /// Folds the teams' products, using the tiles' memory, which is free before and after.
  __device__ void fold(Products<R, A>& products, bool first) const {
    constexpr int kAll = R * Products<R, A>::kPacks;  // packs of a thread
    constexpr int kFit = kTileBytes / int(sizeof(Pack<A>)) / kThreads;
    constexpr int kAtOnce = kAll < kFit ? kAll : kFit;
    static_assert(kAll % kAtOnce == 0);
    auto* room = reinterpret_cast<Pack<A>*>(tiles);
#pragma unroll
    for (int begin = 0; begin < kAll; begin += kAtOnce) {
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        const int row = (begin + q) / Products<R, A>::kPacks;
        const int column = (begin + q) % Products<R, A>::kPacks * kPack;
        room[q * kThreads + int(threadIdx.x)] = {
            products.at[row][column], products.at[row][column + 1], products.at[row][column + 2],
            products.at[row][column + 3]};
      }
      __syncthreads();
      for (int e = int(threadIdx.x); e < kAtOnce * task.tiles; e += kThreads)
        fold_pack(room + e / task.tiles * kThreads, e % task.tiles, begin + e / task.tiles, first);
      __syncthreads();
    }
    products = {};
  }

  /// Folds pack q of product tile `index` over all teams.
  __device__ void fold_pack(const Pack<A>* room, int index, int q, bool first) const {
    constexpr int kPacks = Products<R, A>::kPacks;
    double total[kPack] = {};
    for (int team = 0; team < task.teams; ++team) {
      const Pack<A> one = room[team * task.tiles + index];
#pragma unroll
      for (int v = 0; v < kPack; ++v) total[v] += double(one.at[v]);
    }
    const Cell tile = product_tile<R, SAME>(task.slabs, index);
    const int d = task.slabs.group_size;
    const int left = channel[0][tile.row * R + q / kPacks];
    if (left < 0) return;
    double* row = set + std::int64_t(left) * d;
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      const int right = channel[kSides - 1][tile.column * R + q % kPacks * kPack + v];
      if (right < 0) continue;
      double& entry = row[right % d];
      entry = first ? total[v] : entry + total[v];
    }
  }

  /// Folds the sums of the left channels.
  __device__ void fold_sums(Pack<A>& sums, bool first) const {
    auto* room = reinterpret_cast<Pack<A>*>(tiles);
    room[threadIdx.x] = sums;
    __syncthreads();
    if (threadIdx.x < kSlots && channel[0][threadIdx.x] >= 0) {
      double total = 0;
      for (int share = 0; share < kRowsAtOnce; ++share)
        total +=
            double(room[share * kPacksOfRow + int(threadIdx.x) / kPack].at[threadIdx.x % kPack]);
      double& entry =
          set[std::int64_t(task.slabs.channels) * task.slabs.group_size + channel[0][threadIdx.x]];
      entry = first ? total : entry + total;
    }
    __syncthreads();
    sums = {};
  }

  __device__ void add_sums(Pack<A>& sums, int rows) const {
    const int pack = int(threadIdx.x) % kPacksOfRow;
    for (int row = int(threadIdx.x) / kPacksOfRow; row < rows; row += kRowsAtOnce) {
      const Pack<A> one = *reinterpret_cast<const Pack<A>*>(tiles + Places::pack(row, pack));
#pragma unroll
      for (int v = 0; v < kPack; ++v) sums.at[v] += one.at[v];
    }
  }
};

template <typename T, int R, bool SAME>
__global__ void __launch_bounds__(kMomentsThreads, blocks_at_once<Accumulator<T>>(R))
    sum_products(const __grid_constant__ MomentsTask<T> task) {
  using Block = MomentsBlock<T, R, SAME>;
  using A = Accumulator<T>;
  using Loads = typename Block::Loads;
  using Places = typename Block::Places;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ A center[2][kSlots];
  __shared__ int channel[2][kSlots];
  A* tiles = reinterpret_cast<A*>(memory);
  auto* raw = reinterpret_cast<RawUnit<T>*>(memory + Block::kTileBytes);
  auto* raw_right = raw + Loads::kUnits * kMomentsThreads;

  const int thread = int(threadIdx.x), pair = int(blockIdx.x % unsigned(task.pairs));
  const std::int64_t chunk = blockIdx.x / unsigned(task.pairs);
  const Cell slab = slabs_of(task, pair);
  if (thread < 2 * kSlots) {
    const bool right = thread >= kSlots;
    const int c = task.slabs.channel(right ? slab.column : slab.row, thread % kSlots);
    channel[right][thread % kSlots] = c;
    center[right][thread % kSlots] =
        right && c >= 0 && task.center != nullptr ? task.center[c] : A(0);
  }
  __syncthreads();

  const Block block{task, channel, tiles, task.sets + chunk * task.set_size,
                    task.slabs.parts == 1 || slab.column % task.slabs.parts == 0};
  const std::int64_t begin = chunk * task.chunk, rest = task.left.layout.samples - begin;
  const int length = int(rest < task.chunk ? rest : task.chunk);
  const auto count_from = [&](int first) {
    return length - first < task.rows ? length - first : task.rows;
  };
  const auto fetch = [&](int first) {
    const auto start = task.left.layout.start(begin + first);
    Loads::fetch(task.left, channel[0], start, count_from(first), raw);
    if constexpr (!SAME) Loads::fetch(task.right, channel[1], start, count_from(first), raw_right);
  };

  fetch(0);
  if (task.shift != nullptr) {
    auto* room = reinterpret_cast<SampledChannel*>(tiles);
    choose_shift<T, kMomentsThreads>(task.left, channel[0], room, center[0]);
    if constexpr (!SAME) choose_shift<T, kMomentsThreads>(task.right, channel[1], room, center[1]);
    if (chunk == 0 && block.with_sum && thread < kSlots && channel[0][thread] >= 0)
      task.shift[channel[0][thread]] = center[0][thread];
  }

  const int team = thread < task.teams * task.tiles ? thread / task.tiles : kLongestTile;
  const Cell tile = product_tile<R, SAME>(task.slabs, thread % task.tiles);
  Products<R, A> products;
  Pack<A> sums = {};
  bool first_fold = true;
  int since_fold = 0;
  for (int first = 0; first < length; first += task.rows) {
    const int count = count_from(first);
    await_copies();
    Loads::template convert<true, Places>(task.left, {channel[0], center[0]}, count, raw, tiles);
    if constexpr (!SAME)
      Loads::template convert<true, Places>(task.right, {channel[1], center[1]}, count, raw_right,
                                            tiles + Block::kTile);
    __syncthreads();
    if (first + task.rows < length) fetch(first + task.rows);

    const A* right_tile = tiles + (SAME ? 0 : Block::kTile);
#pragma unroll 1
    for (int quad = team; quad * 4 < count; quad += task.teams)
      products.add(tiles + quad * 4 * kSlots, right_tile + quad * 4 * kSlots, tile.row, tile.column,
                   Places::swizzle(quad * 4));
    if (block.with_sum) block.add_sums(sums, count);
    __syncthreads();

    since_fold += task.rows;
    if (since_fold + task.rows > kFold || first + task.rows >= length) {
      block.fold(products, first_fold);
      if (block.with_sum) block.fold_sums(sums, first_fold);
      first_fold = false;
      since_fold = 0;
    }
  }
}

}  // namespace keel::cuda
