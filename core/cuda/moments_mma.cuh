#pragma once

// Sums of products over samples on tensor cores, for channels in full slabs of 64. A warp takes tiles of
// 32 samples of a slab and keeps all of its products in registers (two warps share a tile, and halve the
// rows of the products, where there are two activations). A tile's pairs of 16 channels are numbered
// 0 to 3, and each is two blocks of eight: an entry of the 8 x 8 fragment that is loaded for a block
// serves as left as well as right operand.
//
// Error: eight samples' products are added on the tensor core, from zero, the small ones first; that cuts
// off at most 3 units of the last place. These sums are added in float32, at most n = 4 kRunRounds
// of them with n u error (u = 2^-24), typically sqrt(n) u; and everything after that in float64.
//
// An entry is made of its own two channels' numbers alone: what is not finite stays there.

#include "activation_tile.cuh"
#include "moments_kernel.cuh"
#include "moments_shift.cuh"
#include "tensor_core.cuh"

namespace keel::cuda {

inline constexpr int kRunRounds = 16;  // tiles of a warp between two foldings

/// SAME: the products of an activation with itself, of which the lower triangle is made. NARROW: groups of
/// at most 16 channels, so only products within a pair of blocks are.
template <typename T, bool LAST, bool SAME, bool NARROW>
struct MomentsMma {
  static constexpr int kTeamWarps = SAME ? 1 : 2;
  static constexpr int kTeams = kTileWarps / kTeamWarps;
  static constexpr int kSides = SAME ? 1 : 2;
  static constexpr int kStages = sizeof(T) == 4 ? 2 : 4;
  using Tile = WarpTile<T, LAST, LAST>;
  static constexpr int kShiftBytes = SAME ? kTileThreads * int(sizeof(SampledChannel)) : 1;
  static constexpr int kBytes = kStages * kTeams * kSides * Tile::kBytes;

  static constexpr int kLeft = SAME ? 4 : 2;              // pairs of a warp's rows
  static constexpr int kRight = SAME || !NARROW ? 4 : 2;  // and of its columns
  static constexpr bool used(int left, int right) {
    return NARROW ? left == right : !SAME || right <= left;
  }
  /// The first of a pair of products' two tiles of 16 x 8.
  static constexpr int tile(int left, int right) {
    return 2 * (NARROW ? left : SAME ? left * (left + 1) / 2 + right : left * 4 + right);
  }
  static constexpr int kTiles = tile(kLeft - 1, kRight - 1) + 2;
  static constexpr int kSums = kTiles * 4;  // of a lane
  static_assert(kTileWarps * (kSums * 32 + 64) * 4 <= kBytes);

  /// Left operands of 16-bit types are what was stored, and need no splitting.
  static constexpr bool kLeftExact = !SAME && sizeof(T) == 2;

  int g, t, half;            // half: of the team
  float center[kRight * 2];  // of the lane's channel in each block of the right
  float products[kTiles][4] = {};
  float sums[kLeft * 2] = {};  // of the left

  /// The slot of a block's row (or column) `index`.
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
      center[b] = centers[slot(2 * right_pair(b / 2) + b % 2, g)];
  }

  /// Numbers t and t + 4 along the samples of both blocks of a pair.
  __device__ void load(const T* tile, int pair, int step, float (&x)[2][2]) const {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float2 two = LAST ? Tile::pair(tile, 8 * step + t + 4 * k, 16 * pair + 2 * g)
                              : Tile::pair(tile, 16 * pair + 8 * k + g, 8 * step + 2 * t);
      x[LAST ? 0 : k][LAST ? k : 0] = two.x;
      x[LAST ? 1 : k][LAST ? k : 1] = two.y;
    }
  }

  /// The operands of a pair: high and low parts of block b's number k are at 2 k + b.
  struct Operands {
    unsigned high[4], low[4];
    __device__ void put(int b, int k, const Split& parts) {
      high[2 * k + b] = parts.high;
      low[2 * k + b] = parts.low;
    }
  };

  /// Adds eight samples of a tile that has `count`.
  __device__ void add(const T* left_tile, const T* right_tile, int step, int count) {
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
              right[p].put(b, k, split(there[k] ? x[b][k] - center[2 * p + b] : 0.0f));
        }
        if (two == 0)
          multiply_pairs<0, 2>(left, right);
        else
          multiply_pairs<kRight - 2, kRight>(left, right);
      }
    }
  }

  /// The products with the right pairs BEGIN to END: one kind of all tiles after another, so that none has
  /// to wait for the one before.
  template <int BEGIN, int END>
  __device__ void multiply_pairs(const Operands (&left)[kLeft],
                                 const Operands (&right)[SAME ? kLeft : kRight]) {
    float made[kLeft][END - BEGIN][2][4];
#pragma unroll
    for (int kind = 0; kind < 3; ++kind)
#pragma unroll
      for (int m = 0; m < kLeft; ++m)
#pragma unroll
        for (int p = BEGIN; p < END; ++p)
#pragma unroll
          for (int b = 0; b < 2; ++b) {
            if (!used(m, p) || (kLeftExact && kind == 0)) continue;
            const unsigned high[2] = {right[p].high[b], right[p].high[2 + b]};
            const unsigned low[2] = {right[p].low[b], right[p].low[2 + b]};
            float(&sum)[4] = made[m][p - BEGIN][b];
            if (kind == (kLeftExact ? 1 : 0))
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

  /// Adds the warps' sums to the chunk's set, by way of shared memory that no copy is on its way to.
  __device__ void fold(const MomentsTask<T>& task, int channel, double* set, float* room,
                       bool first) {
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
#pragma unroll 4
    for (int e = int(threadIdx.x); e < kTeamWarps * kSums * 32; e += kTileThreads)
      fold_product(task, channel, set, room, e, first);
    if (threadIdx.x < kSlots) {
      const int part = int(threadIdx.x) / (kSlots / kTeamWarps);
      double total = 0;
      for (int team = 0; team < kTeams; ++team)
        total += double(sums_room[(team * kTeamWarps + part) * kSlots + int(threadIdx.x)]);
      double& entry = set[std::int64_t(task.slabs.channels) * task.slabs.group_size + channel +
                          int(threadIdx.x)];
      entry = first ? total : entry + total;
    }
    __syncthreads();
  }

  /// Place `e` among the sums of a team.
  static __device__ void fold_product(const MomentsTask<T>& task, int channel, double* set,
                                      const float* room, int e, bool first) {
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
    const int d = task.slabs.group_size;  // a power of two
    if ((i ^ j) & ~(d - 1)) return;
    double& entry = set[std::int64_t(channel + i) * d + (j & (d - 1))];
    entry = first ? total : entry + total;
  }
};

template <typename T, bool LAST, bool SAME, bool NARROW>
__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_slabs(const __grid_constant__ MomentsTask<T> task) {
  using Mma = MomentsMma<T, LAST, SAME, NARROW>;
  using Tile = typename Mma::Tile;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ float center[kSlots];
  __shared__ __align__(16) unsigned char shift_room[Mma::kShiftBytes];

  const int thread = int(threadIdx.x), team = thread / 32 / Mma::kTeamWarps;
  const int slab = int(blockIdx.x % unsigned(task.pairs)), first_channel = slab * kSlots;
  const std::int64_t chunk = blockIdx.x / unsigned(task.pairs), samples = task.left.layout.samples;
  const std::int64_t tiles = pieces<std::int64_t>(samples, kTileSamples);
  const int rounds = int(pieces<std::int64_t>(pieces(tiles - chunk, task.chunks), Mma::kTeams));

  const auto tile_of = [&](int round) {
    return chunk + task.chunks * (std::int64_t(round) * Mma::kTeams + team);
  };
  const auto count_of = [&](std::int64_t n) {
    const std::int64_t left = samples - n * kTileSamples;
    return int(left < kTileSamples ? left : kTileSamples);
  };
  const auto place = [&](int stage, int side) {
    return reinterpret_cast<T*>(memory) +
           ((stage * Mma::kTeams + team) * Mma::kSides + side) * Tile::kNumbers;
  };
  const auto fetch = [&](int round, int end) {
    const std::int64_t n = tile_of(round);
    const int side = thread / 32 % Mma::kTeamWarps;
    if (round < end && n < tiles)
      Tile::fetch(side == 0 ? task.left : task.right, first_channel, n * kTileSamples, count_of(n),
                  place(round % Mma::kStages, side));
    close_copies();
  };

  // The shift's few samples go first, or they would queue behind the tiles.
  ShiftSamples<T, kTileThreads> samples_for_shift;
  if constexpr (SAME) samples_for_shift.load(task.left, first_channel + thread % kSlots);
  const auto fetch_first = [&](int begin, int end) {
#pragma unroll 1
    for (int stage = 0; stage < Mma::kStages; ++stage) fetch(begin + stage, end);
  };
  fetch_first(0, rounds < kRunRounds ? rounds : kRunRounds);
  if constexpr (SAME) {
    choose_shift<T, kTileThreads>(samples_for_shift, reinterpret_cast<SampledChannel*>(shift_room),
                                  center);
    if (chunk == 0 && thread < kSlots) task.shift[first_channel + thread] = center[thread];
  } else {
    if (thread < kSlots)
      center[thread] = task.center != nullptr ? task.center[first_channel + thread] : 0.0f;
    __syncthreads();
  }

  Mma mma(center);
  for (int begin = 0; begin < rounds; begin += kRunRounds) {
    const int end = rounds - begin < kRunRounds ? rounds : begin + kRunRounds;
    if (begin > 0) fetch_first(begin, end);
    for (int round = begin; round < end; ++round) {
      await_copies_but<Mma::kStages - 1>();
      sync_team<Mma::kTeamWarps>(team + 1);
      const std::int64_t n = tile_of(round);
      if (n < tiles) {
        const int count = count_of(n), stage = round % Mma::kStages;
#pragma unroll(SAME && !NARROW ? 1 : 2)  // as registers allow
        for (int step = 0; step < kTileSamples / 8; ++step)
          mma.add(place(stage, 0), place(stage, Mma::kSides - 1), step, count);
      }
      sync_team<Mma::kTeamWarps>(team + 1);
      fetch(round + Mma::kStages, end);
    }
    __syncthreads();
    mma.fold(task, first_channel, task.sets + chunk * task.set_size,
             reinterpret_cast<float*>(memory), begin == 0);
  }
}

}  // namespace keel::cuda
