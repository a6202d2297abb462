#pragma once

// Sums of products over samples on tensor cores, of numbers from which the centers are subtracted
// first. They are then split into parts that tensor cores can multiply. The 8 x 8 fragment that is
// loaded for a block of channels serves as left and as right operand.
//
// Error: the tensor core adds the products of eight samples, starting from zero, small ones first.
// Truncation costs at most 3 units in the last place. These sums are added in float32, at most n =
// 4 kRunRounds of them, with an error of n u (u = 2^-24), typically sqrt(n) u. Everything after that
// is float64.
//
// An entry depends on its own two channels only, so NaN and infinity affect no other entry.

#include "cuda/matrix/tensor_core.cuh"
#include "cuda/moments/slab_sums.cuh"

namespace keel::cuda {

/// LAST: channels are contiguous in memory, otherwise samples. SAME and WIDTH as in SlabSums.
template <typename T, bool LAST, bool SAME, int WIDTH>
struct SplitMma : SlabSums<SAME, WIDTH, /*INTERLEAVED=*/LAST> {
  using Sums = SlabSums<SAME, WIDTH, LAST>;
  using Sums::g, Sums::t, Sums::kLeft, Sums::kRight;
  using Tile = WarpTile<T, LAST, false>;
  static constexpr bool kAsStored = false;
  static constexpr int kStepSamples = 8;
  static constexpr int kRunRounds = 16;  // tiles of a warp between two folds
  /// Left operands of 16-bit types are the stored numbers and need no splitting.
  static constexpr bool kLeftExact = !SAME && sizeof(T) == 2;

  float center[kRight * 2];  // of the lane's channel in each block of the right side

  __device__ explicit SplitMma(const float* centers) {
#pragma unroll
    for (int b = 0; b < kRight * 2; ++b)
      center[b] = centers[Sums::slot(2 * this->right_pair(b / 2) + b % 2, g)];
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

  /// Adds eight samples of a tile that holds `count`.
  __device__ void add(const T* left_tile, const T* right_tile, int step, int count) {
    bool there[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) there[k] = 8 * step + (LAST ? t + 4 * k : 2 * t + k) < count;

    Operands left[kLeft];
#pragma unroll
    for (int p = 0; p < kLeft; ++p) {
      float x[2][2];
      load(left_tile, this->left_pair(p), step, x);
#pragma unroll
      for (int b = 0; b < 2; ++b)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const float number = there[k] ? SAME ? x[b][k] - center[2 * p + b] : x[b][k] : 0.0f;
          this->sums[2 * p + b] += number;
          left[p].put(b, k, kLeftExact ? unsplit(number) : split(number));
        }
    }
    if constexpr (SAME) {
      if constexpr (WIDTH == 16) {
        multiply_pairs<0, 4>(left, left);
      } else if constexpr (WIDTH == 32) {
        multiply_pairs<0, 2>(left, left);
        multiply_pairs<2, 4>(left, left);
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
          load(right_tile, this->right_pair(p), step, x);
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

  /// Multiplies by the right pairs BEGIN to END. All tiles of one kind of product come before the
  /// next kind, so that consecutive instructions do not depend on each other.
  template <int BEGIN, int END>
  __device__ void multiply_pairs(const Operands (&left)[kLeft],
                                 const Operands (&right)[SAME ? kLeft : kRight]) {
    float made[kLeft][END - BEGIN][2][4];
#pragma unroll
    for (int kind = kLeftExact ? 1 : 0; kind < 3; ++kind)
#pragma unroll
      for (int m = 0; m < kLeft; ++m)
#pragma unroll
        for (int p = BEGIN; p < END; ++p)
#pragma unroll
          for (int b = 0; b < 2; ++b) {
            if (!Sums::used(m, p)) continue;
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
            if (Sums::used(m, p))
              this->products[Sums::tile(m, p) + b][r] += made[m][p - BEGIN][b][r];
  }
};

}  // namespace keel::cuda
