#pragma once

// Sums of products over samples on tensor cores, of 16-bit numbers that are multiplied as stored:
// a product is exact, and nothing is subtracted or split. So it is for groups whose means are small
// (StoredGroups); for others, sums of squares would lose what the mean covers.
//
// Error: the tensor core adds the products of the 32 samples of a tile, 16 at a time, starting from
// zero. Truncation costs at most 6 units in the last place. These sums are added in float32, at most
// n = kRunRounds of them, with an error of n u (u = 2^-24), typically sqrt(n) u. Everything after
// that is float64. All this is relative to sums that include the means: with a mean of r deviations,
// 1 + r^2 times the variance.
//
// An entry depends on its own two channels only, so NaN and infinity affect no other entry.

#include "cuda/matrix/tensor_core.cuh"
#include "cuda/moments/slab_sums.cuh"

namespace keel::cuda {

/// T is Half or BFloat16. The other parameters are those of SplitMma.
template <typename T, bool LAST, bool SAME, int WIDTH>
struct StoredMma : SlabSums<SAME, WIDTH, /*INTERLEAVED=*/false> {
  using Sums = SlabSums<SAME, WIDTH, false>;
  using Sums::kLeft, Sums::kRight;
  using Tile = WarpTile<T, LAST, false>;
  static constexpr bool kAsStored = true;
  static constexpr int kSteps = kTileSamples / 16;
  static constexpr int kRunRounds = 32;  // tiles of a warp between two folds

  /// Loads sixteen samples of a pair as left operand: numbers 2 k + b are block b of samples 8 k to
  /// 8 k + 7. Numbers b and 2 + b are block b as right operand.
  static __device__ void load(const T* tile, int pair, int step, unsigned (&x)[4]) {
    const int lane = int(threadIdx.x) % 32, matrix = lane / 8;
    const int sample = 16 * step + matrix / 2 * 8, slot = 16 * pair + matrix % 2 * 8;
    const int row = (LAST ? sample : slot) + lane % 8, column = LAST ? slot : sample;
    load_matrices<LAST>(x, tile + row * Tile::kStride + column);
  }

  /// Adds the samples of a tile. Those that do not exist must be zero.
  __device__ void add(const T* left_tile, const T* right_tile) {
    unsigned left[kSteps][kLeft][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int p = 0; p < kLeft; ++p) load(left_tile, this->left_pair(p), step, left[step][p]);
    // Sums are products with a matrix whose first column is one.
    const unsigned one = this->g == 0 ? two_ones<T>() : 0u;
    float made[kLeft][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int p = 0; p < kLeft; ++p) multiply_step(step, made[p], left[step][p], {one, one});
#pragma unroll
    for (int p = 0; p < kLeft; ++p) {
      this->sums[2 * p] += made[p][0];
      this->sums[2 * p + 1] += made[p][2];
    }
    if constexpr (SAME) {
      multiply(left, left);
    } else {
      unsigned right[kSteps][kRight][4];
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int p = 0; p < kRight; ++p)
          load(right_tile, this->right_pair(p), step, right[step][p]);
      multiply(left, right);
    }
  }

 private:
  /// The first step of a tile starts from zero.
  static __device__ void multiply_step(int step, float (&sums)[4], const unsigned (&left)[4],
                                       const unsigned (&right)[2]) {
    step == 0 ? multiply_stored<T>(sums, left, right) : multiply_add_stored<T>(sums, left, right);
  }

  /// All tiles of some rows of one step come before the next step, so that consecutive instructions
  /// do not depend on each other.
  __device__ void multiply(const unsigned (&left)[kSteps][kLeft][4],
                           const unsigned (&right)[kSteps][kRight][4]) {
    constexpr int kRows = WIDTH == 64 ? 1 : WIDTH == 32 ? 2 : kLeft;
#pragma unroll
    for (int begin = 0; begin < kLeft; begin += kRows) {
      float made[kRows][kRight][2][4];
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int m = begin; m < begin + kRows; ++m)
#pragma unroll
          for (int p = 0; p < kRight; ++p)
#pragma unroll
            for (int b = 0; b < 2; ++b)
              if (Sums::used(m, p))
                multiply_step(step, made[m - begin][p][b], left[step][m],
                              {right[step][p][b], right[step][p][2 + b]});
#pragma unroll
      for (int m = begin; m < begin + kRows; ++m)
#pragma unroll
        for (int p = 0; p < kRight; ++p)
#pragma unroll
          for (int b = 0; b < 2; ++b)
#pragma unroll
            for (int r = 0; r < 4; ++r)
              if (Sums::used(m, p))
                this->products[Sums::tile(m, p) + b][r] += made[m - begin][p][b][r];
    }
  }
};

}  // namespace keel::cuda
