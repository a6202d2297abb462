#pragma once

// Sums of products over samples on tensor cores, for channels in full slabs of 64. A warp takes
// tiles of 32 samples of a slab and keeps all products of the slab in registers. With two different
// activations, two warps share a tile and split the rows of the products. The channels of a tile
// form four pairs of 16 channels, each of two blocks of eight. The 8 x 8 fragment that is loaded
// for a block serves as left and as right operand.
//
// Error: the tensor core adds the products of eight samples, starting from zero, small ones first.
// Truncation costs at most 3 units in the last place. These sums are added in float32, at most n =
// 4 kRunRounds of them, with an error of n u (u = 2^-24), typically sqrt(n) u. Everything after
// that is float64.
//
// An entry depends on its own two channels only, so NaN and infinity affect no other entry.

#include <type_traits>

#include "cuda/activations/tile.cuh"
#include "cuda/matrix/tensor_core.cuh"
#include "cuda/moments/kernel.cuh"
#include "cuda/moments/shift.cuh"

namespace keel::cuda {

inline constexpr int kRunRounds = 16;  // tiles of a warp between two folds

/// SAME: the products of an activation with itself, of which only the lower triangle is computed.
/// NARROW: groups of at most 16 channels, so only products within a pair of blocks are computed.
/// EXACT: 16-bit numbers are multiplied as stored, and the centers are subtracted from the sums.
template <typename T, bool LAST, bool SAME, bool NARROW, bool EXACT = false>
struct MomentsMma {
  static constexpr int kTeamWarps = SAME ? 1 : 2;
  static constexpr int kTeams = kTileWarps / kTeamWarps;
  static constexpr int kSides = SAME ? 1 : 2;
  static constexpr int kStages = sizeof(T) == 4 ? 2 : 4;
  using Tile = WarpTile<T, LAST, LAST>;
  static constexpr int kShiftBytes = SAME ? kTileThreads * int(sizeof(SampledChannel)) : 1;
  static constexpr int kBytes = kStages * kTeams * kSides * Tile::kBytes;

  static constexpr int kLeft = SAME ? 4 : 2;              // pairs in a warp's rows
  static constexpr int kRight = SAME || !NARROW ? 4 : 2;  // pairs in its columns
  static constexpr bool used(int left, int right) {
    return NARROW ? left == right : !SAME || right <= left;
  }
  /// The index of the first of the two 16 x 8 tiles of products of two pairs.
  static constexpr int tile(int left, int right) {
    return 2 * (NARROW ? left : SAME ? left * (left + 1) / 2 + right : left * 4 + right);
  }
  static constexpr int kTiles = tile(kLeft - 1, kRight - 1) + 2;
  static constexpr int kSums = kTiles * 4;  // of a lane
  static_assert(kTileWarps * (kSums * 32 + 64) * 4 <= kBytes);

  /// Left operands of 16-bit types are the stored numbers and need no splitting.
  static constexpr bool kLeftExact = !SAME && sizeof(T) == 2;
  static_assert(!EXACT || kLeftExact);
  /// Whether to use the instructions for bfloat16, which take twice as many samples.
  static constexpr bool kNative = EXACT && std::is_same_v<T, BFloat16>;
  static constexpr int kStepSamples = kNative ? 16 : 8;

  int g, t, half;            // the lane's row and column in a fragment; the warp's half of the team
  float center[kRight * 2];  // of the lane's channel in each block of the right side
  float products[kTiles][4] = {};
  float sums[kLeft * 2] = {};  // of the left side

  /// The slot of row (or column) `index` of a block.
  static __device__ int slot(int block, int index) {
    return LAST ? block / 2 * 16 + 2 * index + block % 2 : block * 8 + index;
  }
  __device__ int left_pair(int p) const { return SAME ? p : 2 * half + p; }
  __device__ int right_pair(int p) const { return SAME || !NARROW ? p : 2 * half + p; }

  __device__ MomentsMma(const float* centers) {
    const int lane = int(threadIdx.x) % 32;
    g = lane / 4, t = lane % 4, half = int(threadIdx.x) / 32 % kTeamWarps;
#pragma unroll
    for (int b = 0; b < kRight * 2; ++b)
      center[b] = EXACT ? 0.0f : centers[slot(2 * right_pair(b / 2) + b % 2, g)];
  }

  /// Loads samples t and t + 4 of a step for both blocks of a pair.
  __device__ void load(const T* tile, int pair, int step, float (&x)[2][2]) const {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float2 two = LAST ? Tile::pair(tile, 8 * step + t + 4 * k, 16 * pair + 2 * g)
                              : Tile::pair(tile, 16 * pair + 8 * k + g, 8 * step + 2 * t);
      x[LAST ? 0 : k][LAST ? k : 0] = two.x;
      x[LAST ? 1 : k][LAST ? k : 1] = two.y;
    }
  }

  /// The operands of a pair: the high and low parts of number k of block b are at 2 k + b.
  struct Operands {
    unsigned high[4], low[4];
    __device__ void put(int b, int k, const Split& parts) {
      high[2 * k + b] = parts.high;
      low[2 * k + b] = parts.low;
    }
  };

  /// Loads sixteen samples of a pair as stored, with zeros beyond `count`. Returns the lane's sums
  /// of both blocks.
  __device__ float2 load_native(const T* tile, int pair, int step, int count, Operands& x) const {
    const auto word = [&](int row, int column) {
      return *reinterpret_cast<const unsigned*>(tile + row * Tile::kStride + column);
    };
    if constexpr (LAST) {
      // A lane may take any four samples, as long as left and right take the same.
      unsigned row[4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int sample = 16 * step + t + 4 * q;
        row[q] = sample < count ? word(sample, 16 * pair + 2 * g) : 0u;
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        x.high[2 * k] = __byte_perm(row[2 * k], row[2 * k + 1], 0x5410);
        x.high[2 * k + 1] = __byte_perm(row[2 * k], row[2 * k + 1], 0x7632);
      }
    } else {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int sample = 16 * step + 8 * k + 2 * t;
        const unsigned there =
            (sample < count ? 0xffffu : 0u) | (sample + 1 < count ? 0xffff0000u : 0u);
#pragma unroll
        for (int b = 0; b < 2; ++b) x.high[2 * k + b] = word(16 * pair + 8 * b + g, sample) & there;
      }
    }
    float sum[2];
#pragma unroll
    for (int b = 0; b < 2; ++b)
      sum[b] =
          (__uint_as_float(x.high[b] << 16) + __uint_as_float(x.high[b] & 0xffff0000u)) +
          (__uint_as_float(x.high[2 + b] << 16) + __uint_as_float(x.high[2 + b] & 0xffff0000u));
    return {sum[0], sum[1]};
  }

  __device__ void add_native(const T* left_tile, const T* right_tile, int step, int count) {
    Operands left[kLeft], right[kRight];
#pragma unroll
    for (int p = 0; p < kLeft; ++p) {
      const float2 sum = load_native(left_tile, left_pair(p), step, count, left[p]);
      sums[2 * p] += sum.x;
      sums[2 * p + 1] += sum.y;
    }
#pragma unroll
    for (int p = 0; p < kRight; ++p) load_native(right_tile, right_pair(p), step, count, right[p]);
    multiply_pairs<0, kRight>(left, right);
  }

  __device__ void add_split(const T* left_tile, const T* right_tile, int step, int count) {
    bool there[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) there[k] = 8 * step + (LAST ? t + 4 * k : 2 * t + k) < count;

    Operands left[kLeft];
#pragma unroll
    for (int p = 0; p < kLeft; ++p) {
      float x[2][2];
      load(left_tile, left_pair(p), step, x);
#pragma unroll
      for (int b = 0; b < 2; ++b)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const float number = there[k] ? SAME ? x[b][k] - center[2 * p + b] : x[b][k] : 0.0f;
          sums[2 * p + b] += number;
          left[p].put(b, k, kLeftExact ? unsplit(number) : split(number));
        }
    }
    if constexpr (SAME) {
      if constexpr (NARROW) {
        multiply_pairs<0, 4>(left, left);
      } else {
        multiply_pairs<0, 1>(left, left);
        multiply_pairs<1, 2>(left, left);
        multiply_pairs<2, 4>(left, left);
      }
    } else {
#pragma unroll
      for (int two = 0; two < kRight; two += 2) {
        Operands right[kRight];
#pragma unroll
        for (int p = two; p < two + 2; ++p) {
          float x[2][2];
          load(right_tile, right_pair(p), step, x);
#pragma unroll
          for (int b = 0; b < 2; ++b)
#pragma unroll
            for (int k = 0; k < 2; ++k)
              right[p].put(b, k,
                           EXACT ? unsplit(there[k] ? x[b][k] : 0.0f)
                                 : split(there[k] ? x[b][k] - center[2 * p + b] : 0.0f));
        }
        if (two == 0)
          multiply_pairs<0, 2>(left, right);
        else
          multiply_pairs<kRight - 2, kRight>(left, right);
      }
    }
  }

  /// Adds kStepSamples samples of a tile that holds `count`.
  __device__ void add(const T* left_tile, const T* right_tile, int step, int count) {
    if constexpr (kNative)
      add_native(left_tile, right_tile, step, count);
    else
      add_split(left_tile, right_tile, step, count);
  }

  /// Multiplies by the right pairs BEGIN to END. All tiles of one kind of product come before the
  /// next kind, so that consecutive instructions do not depend on each other.
  template <int BEGIN, int END>
  __device__ void multiply_pairs(const Operands (&left)[kLeft],
                                 const Operands (&right)[SAME ? kLeft : kRight]) {
    float made[kLeft][END - BEGIN][2][4];
#pragma unroll
    for (int kind = EXACT ? 2 : kLeftExact ? 1 : 0; kind < 3; ++kind)
#pragma unroll
      for (int m = 0; m < kLeft; ++m)
#pragma unroll
        for (int p = BEGIN; p < END; ++p)
#pragma unroll
          for (int b = 0; b < 2; ++b) {
            if (!used(m, p)) continue;
            const unsigned high[2] = {right[p].high[b], right[p].high[2 + b]};
            const unsigned low[2] = {right[p].low[b], right[p].low[2 + b]};
            float(&sum)[4] = made[m][p - BEGIN][b];
            if (kNative)
              multiply_bfloat16(sum, left[m].high, high);
            else if (EXACT)
              multiply(sum, left[m].high, high);
            else if (kind == (kLeftExact ? 1 : 0))
              kLeftExact ? multiply(sum, left[m].high, low) : multiply(sum, left[m].low, high);
            else
              multiply_add(sum, left[m].high, kind == 1 ? low : high);
          }
#pragma unroll
    for (int m = 0; m < kLeft; ++m)
#pragma unroll
      for (int p = BEGIN; p < END; ++p)
#pragma unroll
        for (int b = 0; b < 2; ++b)
#pragma unroll
          for (int r = 0; r < 4; ++r)
            if (used(m, p)) products[tile(m, p) + b][r] += made[m][p - BEGIN][b][r];
  }

  /// Folds the warps' sums into the chunk's set, using shared memory that is not the target of a
  /// pending copy. `centers` and `totals` belong to the slab; `totals` is scratch memory.
  __device__ void fold(const MomentsTask<T>& task, int channel, double* set, float* room,
                       const float* centers, double* totals, bool first) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    float* sums_room = room + kTileWarps * kSums * 32;
#pragma unroll
    for (int q = 0; q < kSums; ++q) {
      room[(warp * kSums + q) * 32 + lane] = products[q / 4][q % 4];
      products[q / 4][q % 4] = 0;
    }
#pragma unroll
    for (int b = 0; b < kLeft * 2; ++b) {
      float total = sums[b];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      if (t == 0) sums_room[warp * kSlots + slot(2 * left_pair(b / 2) + b % 2, g)] = total;
      sums[b] = 0;
    }
    __syncthreads();
    if (threadIdx.x < kSlots) {
      const int part = int(threadIdx.x) / (kSlots / kTeamWarps);
      double total = 0;
      for (int team = 0; team < kTeams; ++team)
        total += double(sums_room[(team * kTeamWarps + part) * kSlots + int(threadIdx.x)]);
      double& entry = set[std::int64_t(task.slabs.channels) * task.slabs.group_size + channel +
                          int(threadIdx.x)];
      entry = first ? total : entry + total;
      if constexpr (EXACT) totals[threadIdx.x] = total;
    }
    if constexpr (EXACT) __syncthreads();
#pragma unroll 4
    for (int e = int(threadIdx.x); e < kTeamWarps * kSums * 32; e += kTileThreads)
      fold_product(task, channel, set, room, centers, totals, e, first);
    __syncthreads();
  }

  /// Folds sum `e` of a team over all teams.
  static __device__ void fold_product(const MomentsTask<T>& task, int channel, double* set,
                                      const float* room, const float* centers, const double* totals,
                                      int e, bool first) {
    const int lane = e % 32, q = e / 32 % kSums, part = e / 32 / kSums, pair = q / 8;
    const Cell cell = NARROW ? Cell{pair, pair}
                      : SAME ? cell_of_triangle(pair)
                             : Cell{pair / 4, pair % 4};
    const int first_pair = SAME ? 0 : 2 * part;
    const int left = 2 * (first_pair + cell.row) + q / 2 % 2;
    const int right = 2 * (NARROW ? first_pair + cell.column : cell.column) + q / 4 % 2;
    const int i = slot(left, lane / 4), j = slot(right, 2 * (lane % 4) + q % 2);
    double total = 0;
#pragma unroll
    for (int team = 0; team < kTeams; ++team)
      total += double(room[((team * kTeamWarps + part) * kSums + q) * 32 + lane]);
    if constexpr (EXACT) total -= totals[i] * double(centers[j]);
    const int d = task.slabs.group_size;  // a power of two
    if ((i ^ j) & ~(d - 1)) return;
    double& entry = set[std::int64_t(channel + i) * d + (j & (d - 1))];
    entry = first ? total : entry + total;
  }
};

}  // namespace keel::cuda
