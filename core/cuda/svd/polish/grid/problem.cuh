#pragma once

// Shared by the steps of grid.cu: X over J in global memory, and the state of each matrix. Later steps skip a
// matrix that is done or left.

#include <cmath>

#include "cuda/plan.h"
#include "cuda/svd/layouts.h"
#include "cuda/svd/polish/grid/angles.h"
#include "cuda/threads.cuh"
#include "formulas/rotation.h"
#include "formulas/scale.h"
#include "keel/svd.h"

namespace keel::cuda {

/// Sums over all lanes of a warp. Each lane gets the sum.
template <typename T>
__device__ GridFound<T> sum_of_lanes(GridFound<T> found) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2)
    found.add({__shfl_xor_sync(0xffffffffu, found.angles, step),
               __shfl_xor_sync(0xffffffffu, found.cosines, step),
               __shfl_xor_sync(0xffffffffu, found.moved, step),
               __shfl_xor_sync(0xffffffffu, found.rotates, step),
               __shfl_xor_sync(0xffffffffu, found.apart, step)});
  return found;
}

/// Sums over all threads of a block of GridTile. The first warp gets the sum.
template <typename T>
__device__ GridFound<T> sum_of_block(GridFound<T> found) {
  constexpr int kWarps = GridTile<T>::kWarps;
  __shared__ GridFound<T> of_warp[kWarps];
  found = sum_of_lanes(found);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = found;
  __syncthreads();
  found = of_warp[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) found.add(of_warp[warp]);
  return found;
}

/// How to correct X and J by K.
enum class GridWay {
  none,         ///< no correction needed
  none_fits,    ///< too many angles: leave the matrix to Jacobi's method
  neighbours,   ///< angles too large for a common correction
  regroup,      ///< the same: multiply by the eigenvectors of regroup.h
  three_terms,  ///< multiply by (I + K) (I + K^2 / 2) (I + 3 K^4 / 8)
  two_terms,    ///< multiply by I + K + K^2 / 2
  one_term      ///< multiply by I + K
};

template <typename T>
struct GridPlan {
  GridWay way;
  bool masked = false;  ///< of K, only angles up to PolishReach::kApart
  T share = 1;          ///< the factor of K that keeps the correction orthogonal to rounding
};

/// The state of a matrix before a step. Flags; any can be set together.
enum GridState : int { kInSecondBuffer = 1, kDone = 2, kUnsolved = 4 };

/// Data of the matrices in progress.
template <typename T>
struct GridProblem {
  static constexpr int kSlices = 32;  ///< blocks that scan one matrix's entries
  Rectangles<const T> matrices;
  std::int64_t first, count;
  int m, n;
  int* exponents;
  bool* unsolved;
  T *column_size, *row_size;  ///< n and m per matrix: the largest entries
  T* squares;           ///< n per matrix: squared lengths of the columns at the last measurement
  GridFound<T>* found;  ///< of each tile of K
  int* states;          ///< GridState of all matrices before each step
  T *one, *two;         ///< X over J by columns, and the buffer for the next step
  bool three_terms;     ///< whether there are launches for a third term
  int turns;            ///< how often columns may be turned by regroup.h, in the steps 1, 3, ...

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
  /// A matrix of n columns, by columns.
  __device__ GridFactor<T> columns(const T* data, int rows, std::int64_t stride) const {
    return {data, stride, rows, n};
  }
  __device__ T* stack(int state, std::int64_t at) const {
    return (state & kInSecondBuffer ? two : one) + at * height() * n;
  }
  /// The share of the sum over all tiles that a lane adds up. It is the same in every warp. Many tiles take longer to read
  /// than the state, which says before that nobody needs them.
  __device__ GridFound<T> found_by_lane(std::int64_t at, int step) const {
    const int all = tiles(n) * tiles(n), lane = int(threadIdx.x) % 32;
    GridFound<T> sum{};
    if (n > kLargestSvd && (state(step, at) & (kDone | kUnsolved))) return sum;
#pragma unroll 4
    for (int t = lane; t < all; t += 32) sum.add(found[at * all + t]);
    return sum;
  }
  __device__ GridPlan<T> plan(const GridFound<T>& found, int step) const {
    using Reach = PolishReach<T>;
    const T most = three_terms ? Reach::kThird : Reach::kSecond;
    if (found.rotates == 0) return {GridWay::none};
    // Up to four times as much takes one step more.
    const bool hard = !(found.angles <= 4 * most);
    const bool masked = hard && step < 2 * turns && found.angles > 0 &&
                        (step > 0 || !few_are_large(found.angles, found.apart));
    if (masked && step % 2 == 1) return {GridWay::regroup};
    if (!masked) {
      if (too_many_angles(n, found.angles)) return {GridWay::none_fits};
      if (found.angles > (three_terms && turns > 0 ? 4 : 1) * Reach::kThird)
        return {GridWay::neighbours};
    }
    const T sum = masked ? found.apart : found.angles;
    const GridWay way = sum > Reach::kSecond
                            ? three_terms ? GridWay::three_terms : GridWay::two_terms
                        : sum > Reach::kFirst ? GridWay::two_terms
                                              : GridWay::one_term;
    return {way, masked, sum > most ? std::sqrt(most / sum) : T(1)};
  }
};

/// A block's tile, in matrices of this many rows and columns.
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
