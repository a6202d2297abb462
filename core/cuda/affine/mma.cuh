#pragma once

// output = sum of coefficient (input - center) + bias on tensor cores, for groups of 16, 32 or 64
// channels in full slabs of 64. Each warp takes its own tiles of 32 or 16 samples and waits for no
// other warp. The block shares the coefficients of its slab, split and in fragment order. If
// samples are contiguous in memory, coefficients are the left operand; if channels are, they are
// the right one. So the numbers are multiplied in the order of memory.
//
// Samples are rows or columns of a product, and coefficients of other groups are skipped rather
// than zero. So NaN and infinity stay in their sample and group.
//
// Error: the large products of D channels (D / 8 sums of 8) and the small ones are accumulated
// separately, with truncation, and then rounded once: at most D / 8 + 2 units in the last place of
// the largest partial sum. Where bfloat16 numbers are multiplied as stored, each product may also be
// off by 2^-16 of itself, since coefficients have two parts there.

#include <type_traits>

#include "cuda/activations/tile.cuh"
#include "cuda/affine/parts.cuh"
#include "cuda/matrix/tensor_core.cuh"

namespace keel::cuda {

/// ADDS: the task has a residual.
template <typename T, bool LAST, int D, bool ADDS>
struct AffineMma {
  // Use twice as many warps with tiles half as large, which need half as many registers for sums,
  // only where that was measured to be faster (H200): with ADDS clearly at D = 16 and slightly at
  // 64. Without ADDS it was slower at D = 64 and equal at 16.
  static constexpr bool kSmallTiles = LAST && ADDS;
  static constexpr int kSamples = kSmallTiles ? kTileSamples / 2 : kTileSamples;
  static constexpr int kWarps = kSmallTiles ? kTileWarps * 2 : kTileWarps, kThreads = kWarps * 32;
  using Tile = WarpTile<T, LAST, !LAST, kSamples>;
  static constexpr int kStages = sizeof(T) == 4 ? 2 : LAST ? 4 : 3;  // as shared memory allows
  static constexpr int kRingBytes = kWarps * kStages * Tile::kBytes;
  static constexpr int kSteps = D / 8;  // over the channels that are summed
  // In tiles of 16 x 8:
  static constexpr int kRows = LAST ? kSamples / 16 : 4, kColumns = LAST ? 8 : 4;
  static constexpr int kOfGroup = LAST ? kColumns * D / kSlots : kRows * D / kSlots;

  int g, t;
  float large[kRows][kColumns][4], small[kRows][kColumns][4];

  __device__ AffineMma() : g(int(threadIdx.x) % 32 / 4), t(int(threadIdx.x) % 4) {}

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < kRows; ++m)
#pragma unroll
      for (int n = 0; n < kColumns; ++n)
#pragma unroll
        for (int r = 0; r < 4; ++r) large[m][n][r] = small[m][n][r] = 0;
  }

  /// Whether numbers without a center are multiplied as stored, in bfloat16.
  static constexpr bool kAsStored = LAST && std::is_same_v<T, BFloat16>;

  /// EXACT: there is no center, and the numbers need no splitting.
  template <bool EXACT>
  static __device__ Split centered(float x, float center) {
    return EXACT ? unsplit(x) : split(x - center);
  }

  /// `without_center`: the groups whose numbers are multiplied as they are.
  __device__ void add(const T* tile, const float* centers, const float* parts,
                      const StoredGroups& without_center) {
#pragma unroll
    for (int group = 0; group < kSlots / D; ++group) {
      if (sizeof(T) == 4 || !without_center.has(group * D))
        add_group<false>(tile, centers, parts, group);
      else if constexpr (kAsStored)
        add_stored(tile, parts, group);
      else
        add_group<true>(tile, centers, parts, group);
    }
  }

  template <bool EXACT>
  __device__ void add_group(const T* tile, const float* centers, const float* parts, int group) {
#pragma unroll(D == 64 ? 2 : 8)
    for (int step = 0; step < kSteps; ++step)
      if constexpr (LAST)
        add_samples_by_channels<EXACT>(tile, centers, parts, group, step);
      else
        add_channels_by_samples<EXACT>(tile, centers, parts, group, step);
  }

  __device__ void add_stored(const T* tile, const float* words, int group) {
    using Coefficients = Bfloat16Coefficients<D>;
    const int lane = int(threadIdx.x) % 32;
    words += group * Coefficients::kGroupWords;
    const auto* pairs = reinterpret_cast<const uint4*>(words) + lane;
    const T* const row =
        tile + (lane / 8 % 2 * 8 + lane % 8) * Tile::kStride + group * D + lane / 16 * 8;
#pragma unroll(D == 64 ? 2 : 4)
    for (int step = 0; step < Coefficients::kSteps; ++step) {
      unsigned left[kRows][4];
#pragma unroll
      for (int m = 0; m < kRows; ++m)
        load_matrices<false>(left[m], row + 16 * m * Tile::kStride + 16 * step);
      constexpr int kAtOnce = kOfGroup < 4 ? kOfGroup : 4;
#pragma unroll
      for (int begin = 0; begin < kOfGroup; begin += kAtOnce) {
        unsigned right[2][kAtOnce][2];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const uint4 two = pairs[((begin + k) * Coefficients::kSteps + step) * 32];
          right[0][k][0] = two.x, right[0][k][1] = two.y;
          right[1][k][0] = two.z, right[1][k][1] = two.w;
        }
#pragma unroll
        for (int part = 1; part >= 0; --part)
#pragma unroll
          for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
            for (int m = 0; m < kRows; ++m) {
              const int column = group * kOfGroup + begin + k;
              multiply_add_bfloat16(part == 0 ? large[m][column] : small[m][column], left[m],
                                    right[part][k]);
            }
      }
    }
  }

  template <bool EXACT>
  __device__ void add_channels_by_samples(const T* tile, const float* centers, const float* parts,
                                          int group, int step) {
    const int row = group * D + step * 8 + t;
    const float center[2] = {EXACT ? 0 : centers[row], EXACT ? 0 : centers[row + 4]};
    unsigned high[kColumns][2], low[kColumns][2];
#pragma unroll
    for (int n = 0; n < kColumns; n += 2)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float2 x = Tile::pair(tile, row + 4 * k, n * 8 + 2 * g);
        const Split a = centered<EXACT>(x.x, center[k]), b = centered<EXACT>(x.y, center[k]);
        high[n][k] = a.high, low[n][k] = a.low;
        high[n + 1][k] = b.high, low[n + 1][k] = b.low;
      }
    const auto* from = reinterpret_cast<const uint4*>(parts) + int(threadIdx.x) % 32;
    constexpr int kAtOnce = kOfGroup < 2 ? kOfGroup : 2;
#pragma unroll
    for (int begin = group * kOfGroup; begin < (group + 1) * kOfGroup; begin += kAtOnce) {
      unsigned left_high[kAtOnce][4], left_low[kAtOnce][4];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const uint4 h = from[((begin + k) * kSteps + step) * 64];
        const uint4 l = from[((begin + k) * kSteps + step) * 64 + 32];
        left_high[k][0] = h.x, left_high[k][1] = h.y, left_high[k][2] = h.z, left_high[k][3] = h.w;
        left_low[k][0] = l.x, left_low[k][1] = l.y, left_low[k][2] = l.z, left_low[k][3] = l.w;
      }
      // All tiles of one kind of product come before the next kind, so that consecutive
      // instructions do not depend on each other.
#pragma unroll
      for (int kind = EXACT ? 1 : 0; kind < 3; ++kind)
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
          for (int n = 0; n < kColumns; ++n)
            multiply_add(kind == 2 ? large[begin + k][n] : small[begin + k][n],
                         kind == 1 ? left_low[k] : left_high[k], kind == 0 ? low[n] : high[n]);
    }
  }

  template <bool EXACT>
  __device__ void add_samples_by_channels(const T* tile, const float* centers, const float* parts,
                                          int group, int step) {
    const int column = group * D + step * 8 + 2 * t;
    const float center[2] = {EXACT ? 0 : centers[column], EXACT ? 0 : centers[column + 1]};
    unsigned high[kRows][4], low[kRows][4];
#pragma unroll
    for (int m = 0; m < kRows; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 x = Tile::pair(tile, 16 * m + 8 * h + g, column);
        const Split a = centered<EXACT>(x.x, center[0]), b = centered<EXACT>(x.y, center[1]);
        high[m][h] = a.high, low[m][h] = a.low;
        high[m][2 + h] = b.high, low[m][2 + h] = b.low;
      }
    const auto* from = reinterpret_cast<const uint4*>(parts) + int(threadIdx.x) % 32;
    constexpr int kAtOnce = kOfGroup < 4 ? kOfGroup : 4;
#pragma unroll
    for (int begin = group * kOfGroup; begin < (group + 1) * kOfGroup; begin += kAtOnce) {
      unsigned right_high[kAtOnce][2], right_low[kAtOnce][2];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const uint4 both = from[((begin + k) * kSteps + step) * 32];
        right_high[k][0] = both.x, right_high[k][1] = both.y;
        right_low[k][0] = both.z, right_low[k][1] = both.w;
      }
#pragma unroll
      for (int kind = EXACT ? 1 : 0; kind < 3; ++kind)
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
          for (int m = 0; m < kRows; ++m)
            multiply_add(kind == 2 ? large[m][begin + k] : small[m][begin + k],
                         kind == 0 ? low[m] : high[m], kind == 1 ? right_low[k] : right_high[k]);
    }
  }

  /// Rounds four adjacent numbers, of row g (+ 8 h) of the tiles (m, n) and (m, n + 1), and clamps
  /// them to `least`. ADDS: adds the four of `residual` first.
  __device__ Pack<T> four(int m, int n, int h, const float (&bias)[4], const T* residual,
                          float least) const {
    Pack<T> added;
    if constexpr (ADDS) added = *reinterpret_cast<const Pack<T>*>(residual);
    float sums[4];
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const int r = 2 * h + v / 2;
      sums[v] = large[m][n + v % 2][r] + small[m][n + v % 2][r] + bias[v];
      if constexpr (ADDS) sums[v] += widened(added.at[v]);
      sums[v] = at_least(sums[v], least);
    }
    return rounded_four<T>(sums);
  }

  /// `residual` is a tile, if ADDS.
  __device__ void write_tile(const AffineTask<T>& task, const float* bias, const T* residual,
                             int channel, std::int64_t first, int count) const {
    if (task.output_fours)  // tested once: two separate paths are shorter than a mixed one
      write<true>(task, bias, residual, channel, first, count);
    else
      write<false>(task, bias, residual, channel, first, count);
  }

  template <bool FOURS>
  __device__ void write(const AffineTask<T>& task, const float* bias, const T* residual,
                        int channel, std::int64_t first, int count) const {
    if constexpr (LAST)
      write_samples<FOURS>(task, bias, residual, channel, first, count);
    else
      write_channels<FOURS>(task, bias, residual, channel, first, count);
  }

  template <bool FOURS>
  __device__ void write_channels(const AffineTask<T>& task, const float* bias, const T* residual,
                                 int channel, std::int64_t first, int count) const {
    const auto start = task.layout.start(first);
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      const int local = 8 * n + 4 * t;
      if (local >= count) continue;
      T* to = task.output + task.layout.offset(start, local, channel + g);
#pragma unroll
      for (int m = 0; m < kRows; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int slot = 16 * m + 8 * h;
          const float b = bias[slot + g];
          const T* const added = ADDS ? residual + (slot + g) * Tile::kStride + local : nullptr;
          const Pack<T> made = four(m, n, h, {b, b, b, b}, added, task.least);
          if constexpr (FOURS) {
            *reinterpret_cast<Pack<T>*>(to + slot * task.layout.positions) = made;
          } else {
#pragma unroll
            for (int v = 0; v < 4; ++v)
              if (local + v < count)
                task.output[task.layout.offset(start, local + v, channel + g + slot)] = made.at[v];
          }
        }
    }
  }

  template <bool FOURS>
  __device__ void write_samples(const AffineTask<T>& task, const float* bias, const T* residual,
                                int channel, std::int64_t first, int count) const {
    T* to = task.output + (first + g) * task.layout.channels + channel;
#pragma unroll
    for (int m = 0; m < kRows; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int local = 16 * m + 8 * h;
        if (local + g >= count) continue;
#pragma unroll
        for (int n = 0; n < kColumns; n += 2) {
          const int slot = 8 * n + 4 * t;
          const T* const added = ADDS ? residual + (local + g) * Tile::kStride + slot : nullptr;
          const Pack<T> made =
              four(m, n, h, {bias[slot], bias[slot + 1], bias[slot + 2], bias[slot + 3]}, added,
                   task.least);
          T* place = to + local * task.layout.channels + slot;
          if constexpr (FOURS) {
            *reinterpret_cast<Pack<T>*>(place) = made;
          } else {
#pragma unroll
            for (int v = 0; v < 4; ++v) place[v] = made.at[v];
          }
        }
      }
  }
};

}  // namespace keel::cuda
