#pragma once

// What the steps of polish_grid.cu share: X over J in global memory, and where each matrix stands. A matrix that is done, or
// left, is passed over by the steps that follow.

#include <cmath>

#include "cuda/svd/polish.h"
#include "keel/svd.h"

namespace keel::cuda {

/// What a look at the angles between columns has found; TeamPolish::Found of polish.h.
template <typename T>
struct GridFound {
  T angles, cosines, moved, turns;

  __device__ void add(const GridFound& other) {
    angles += other.angles;
    cosines += other.cosines;
    moved += other.moved;
    turns += other.turns;
  }
  /// Of all lanes of a warp, the same for each.
  __device__ void add_lanes() {
    for (int step = 1; step < 32; step *= 2)
      add({__shfl_xor_sync(0xffffffffu, angles, step), __shfl_xor_sync(0xffffffffu, cosines, step),
           __shfl_xor_sync(0xffffffffu, moved, step), __shfl_xor_sync(0xffffffffu, turns, step)});
  }
  /// Of all threads of a block of 64, the same for each.
  __device__ void add_block() {
    __shared__ GridFound of_warp[2];
    add_lanes();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = *this;
    __syncthreads();
    *this = of_warp[0];
    add(of_warp[1]);
  }
};

/// How K is to be taken out of X and J.
enum class GridWay {
  none,         ///< no angle is to be taken out
  left,         ///< too many
  neighbours,   ///< too large for all at once
  three_terms,  ///< by (I + K) (I + K^2 / 2) (I + 3 K^4 / 8)
  two_terms,    ///< by I + K + K^2 / 2, of GridProblem::share of K
  one_term      ///< by I + K
};

/// Where a matrix stands before a step. The three can be set at the same time.
enum GridState : int { kInSecondBuffer = 1, kIsDone = 2, kIsLeft = 4 };

/// What is kept for the matrices under way.
template <typename T>
struct GridProblem {
  static constexpr int kSlices = 32;  ///< blocks that look over a matrix's entries
  Rectangles<const T> matrices;
  std::int64_t first, count;
  int m, n;
  int* exponents;
  bool* is_left;
  T *column_size, *row_size;  ///< n and m for each: the largest entries
  T* squares;           ///< n for each: the columns' lengths, squared, as the last look found them
  GridFound<T>* found;  ///< of each tile of K
  int* states;          ///< GridState of all matrices before each step
  T *one, *two;         ///< X over J by columns, and where a turn writes it
  bool three_terms;     ///< whether there are launches for them

  __host__ __device__ int height() const { return m + n; }
  __host__ __device__ static int tiles(int length) { return (length + 31) / 32; }
  __device__ bool wide() const { return matrices.rows < matrices.columns; }
  __device__ SvdSource<T> source(std::int64_t at) const {
    return {matrices[first + at], wide() ? 1 : matrices.row_stride,
            wide() ? matrices.row_stride : 1};
  }
  __device__ UnitScale<T> scale(std::int64_t at) const {
    UnitScale<T> scale(T(1));
    scale.set(exponents[at]);
    return scale;
  }
  __device__ int& state(int step, std::int64_t at) const { return states[step * count + at]; }
  __device__ T* stack(int state, std::int64_t at) const {
    return (state & kInSecondBuffer ? two : one) + at * height() * n;
  }
  /// What the threads of a block find when they add up, in the same order everywhere.
  __device__ GridFound<T> find(std::int64_t at) const {
    const int all = tiles(n) * tiles(n);
    GridFound<T> sum{};
    for (int t = int(threadIdx.x); t < all; t += int(blockDim.x)) sum.add(found[at * all + t]);
    sum.add_block();
    return sum;
  }
  __device__ GridWay way(const GridFound<T>& found) const {
    using Reach = PolishReach<T>;
    if (found.turns == 0) return GridWay::none;
    if (too_many_angles(n, found.angles)) return GridWay::left;
    if (found.angles > Reach::kThird) return GridWay::neighbours;
    if (found.angles > Reach::kSecond)
      return three_terms ? GridWay::three_terms : GridWay::two_terms;
    return found.angles > Reach::kFirst ? GridWay::two_terms : GridWay::one_term;
  }
  /// How much of K is taken out: no more than leaves I + K + K^2 / 2 orthogonal to rounding where there is no third term.
  __device__ T share(const GridFound<T>& found) const {
    const T most = PolishReach<T>::kSecond;
    return three_terms || !(found.angles > most) ? T(1) : std::sqrt(most / found.angles);
  }
};

/// A block's tile of a matrix of that many tiles.
struct GridPlace {
  std::int64_t at;
  int tile, top, first;
  __device__ GridPlace(int rows, int columns) {
    const int down = (rows + 31) / 32, across = (columns + 31) / 32;
    at = blockIdx.x / (down * across);
    tile = int(blockIdx.x % (down * across));
    top = tile / across * 32;
    first = tile % across * 32;
  }
};

}  // namespace keel::cuda
