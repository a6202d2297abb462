#pragma once

// One step of TeamPolish::polish (polish/math.h): measures the angles between columns, computes the correction, applies
// it.

#include <cmath>
#include <limits>

#include "cuda/launch/launch.h"
#include "cuda/svd/polish/grid/problem.cuh"
#include "formulas/regroup.h"

namespace keel::cuda {

/// Computes K, entry (i, j) at j n + i, from the products of columns, and its properties, like TeamPolish::measure.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_angles(GridProblem<T> p, int step, T* all_angles) {
  __shared__ GridAngles<T> look;
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  const int n = p.n, thread = int(threadIdx.x), state = p.state(step, place.at);
  if (state & (kDone | kUnsolved)) return;
  look.multiply(BlockTeam<32, 1>{}, p.columns(p.stack(state, place.at), p.m, p.height()), place.top,
                place.first);
  if (place.top == place.first && thread < 32 && place.top + thread < n)
    p.squares[place.at * n + place.top + thread] = look.square[0][thread];
  const GridFound<T> found =
      sum_of_block(look.measure(thread, n, place.top, place.first, all_angles + place.at * n * n));
  if (thread == 0) p.found[place.at * p.tiles(n) * p.tiles(n) + place.tile] = found;
}

/// Takes out of K what it says of columns that A^T A could not tell apart.
template <typename T>
__global__ void __launch_bounds__(256) grid_mask(GridProblem<T> p, int step, T* all_angles) {
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  const GridFound<T> found = p.found_by_lane(place.at, step);
  if (p.state(step, place.at) & (kDone | kUnsolved)) return;
  if (!p.plan(sum_of_lanes(found), step).masked) return;
  const int i = place.top + int(threadIdx.x) % 32, n = p.n;
  T* const angles = all_angles + place.at * n * n;
  for (int j = place.first + int(threadIdx.x) / 32; j < min(place.first + 32, n); j += 8)
    if (i < n && !(std::abs(angles[j * n + i]) <= PolishReach<T>::kApart)) angles[j * n + i] = 0;
}

/// X^T X, for regroup.h.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_products(GridProblem<T> p, int step, T* products) {
  using Tile = GridTile<T>;
  __shared__ Tile tile;
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  const GridFound<T> found = p.found_by_lane(place.at, step);
  const int n = p.n, thread = int(threadIdx.x), state = p.state(step, place.at);
  if (state & (kDone | kUnsolved)) return;
  if (p.plan(sum_of_lanes(found), step).way != GridWay::regroup) return;
  const GridFactor<T> x = p.columns(p.stack(state, place.at), p.m, p.height());
  tile.template multiply<true, true>(BlockTeam<32, 1>{}, p.m, place.top, place.first, x, x);
  __syncthreads();
  typename Tile::Own own;
#pragma unroll
  for (int w = 0; w < Tile::kOwn; ++w) own.at[w] = tile.sum_of_own(thread, w);
  Tile::write_own(thread, place.top, place.first, own, products + place.at * n * n, n, n, n);
}

/// Groups the columns, and says which matrices need that. One block per matrix.
template <typename T>
__global__ void __launch_bounds__(512)
    grid_groups(GridProblem<T> p, int step, T* products, T* numbers, int* places, bool* wanted) {
  await_previous();
  let_next_start();
  const std::int64_t at = blockIdx.x;
  const GridFound<T> found = p.found_by_lane(at, step);
  const bool turns = !(p.state(step, at) & (kDone | kUnsolved)) &&
                     p.plan(sum_of_lanes(found), step).way == GridWay::regroup;
  if (threadIdx.x == 0) wanted[at] = turns;
  if (turns)
    regroup(BlockTeam<32, 1>{}, p.n, PolishReach<T>::kApart, products + at * p.n * p.n, p.n,
            numbers + at * kRegroupNumbers * p.n, places + at * kRegroupPlaces * p.n);
}

/// to = factor left right + of_one one [+ two], n x n each, entry (i, j) at j n + i.
template <typename T>
__device__ void grid_product(const GridProblem<T>& p, const GridPlace& place, T factor,
                             const T* left, const T* right, T of_one, const T* one, const T* two,
                             T* to) {
  using Tile = GridTile<T>;
  __shared__ Tile tile;
  const std::int64_t offset = place.at * p.n * p.n;
  const int n = p.n, thread = int(threadIdx.x);
  const auto own_of = [&](const T* data) {
    return Tile::read_own(thread, place.top, place.first, p.columns(data + offset, n, n));
  };
  tile.template multiply<false, true>(BlockTeam<32, 1>{}, n, place.top, place.first,
                                      p.columns(left + offset, n, n),
                                      p.columns(right + offset, n, n));
  typename Tile::Own own = own_of(one), other{};
  if (two != nullptr) other = own_of(two);
  __syncthreads();
#pragma unroll
  for (int w = 0; w < Tile::kOwn; ++w) {
    const GridFour<T> sum = tile.sum_of_own(thread, w);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      own.at[w].at[e] = factor * sum.at[e] + of_one * own.at[w].at[e] + other.at[w].at[e];
  }
  Tile::write_own(thread, place.top, place.first, own, to + offset, n, n, n);
}

/// The correction without its leading I. For two terms: c K + c^2 K^2 / 2, where c is the share of K. For three: Q =
/// c^2 K^2.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_square_angles(GridProblem<T> p, int step, const T* angles, T* squares) {
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  GridFound<T> found = p.found_by_lane(place.at, step);
  if (p.state(step, place.at) & (kDone | kUnsolved)) return;
  const GridPlan<T> plan = p.plan(sum_of_lanes(found), step);
  const bool two = plan.way == GridWay::two_terms;
  const T share = plan.share;
  if (two || plan.way == GridWay::three_terms)
    grid_product<T>(p, place, two ? share * share / 2 : share * share, angles, angles,
                    two ? share : T(0), angles, nullptr, squares);
}

/// S = Q / 2 + 3 Q^2 / 8
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_third_term(GridProblem<T> p, int step, const T* squares, T* sums) {
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  const GridFound<T> found = p.found_by_lane(place.at, step);
  if (p.state(step, place.at) & (kDone | kUnsolved)) return;
  if (p.plan(sum_of_lanes(found), step).way == GridWay::three_terms)
    grid_product<T>(p, place, T(0.375), squares, squares, T(0.5), squares, nullptr, sums);
}

/// (I + c K) (I + S) - I = c K S + c K + S, written over Q.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_join_terms(GridProblem<T> p, int step, const T* angles, const T* sums, T* squares) {
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  const GridFound<T> found = p.found_by_lane(place.at, step);
  if (p.state(step, place.at) & (kDone | kUnsolved)) return;
  const GridPlan<T> plan = p.plan(sum_of_lanes(found), step);
  if (plan.way == GridWay::three_terms)
    grid_product<T>(p, place, plan.share, angles, sums, plan.share, angles, sums, squares);
}

/// Applies the correction to X and J, into the other buffer, and sets the state for the next step. `all_squares` has the
/// eigenvectors of what was regrouped.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_correct(GridProblem<T> p, int step, const T* all_angles, const T* all_squares) {
  using Tile = GridTile<T>;
  __shared__ Tile tile;
  await_previous();
  let_next_start();
  const GridPlace place(p.height(), p.n);
  GridFound<T> found = p.found_by_lane(place.at, step);
  const int n = p.n, thread = int(threadIdx.x), height = p.height(),
            state = p.state(step, place.at);
  int& next = p.state(step + 1, place.at);
  const bool sets_state = place.tile == 0 && thread == 0;
  if (state & (kDone | kUnsolved)) {
    if (sets_state) next = state;
    return;
  }
  found = sum_of_lanes(found);
  const GridPlan<T> plan = p.plan(found, step);
  const GridWay way = plan.way;
  if (way == GridWay::none || way == GridWay::none_fits) {
    if (sets_state) next = state | (way == GridWay::none ? kDone : kUnsolved);
    return;
  }
  const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(n));
  const bool suffices = way != GridWay::neighbours && way != GridWay::regroup && !plan.masked &&
                        !(plan.share < 1) &&
                        16 * 4 * found.cosines * found.moved <= tolerance * tolerance;
  if (sets_state) next = (state ^ kInSecondBuffer) | (suffices ? kDone : 0);
  const T* const from = p.stack(state, place.at);
  T* const to = p.stack(state ^ kInSecondBuffer, place.at);
  const T* const angles = all_angles + place.at * n * n;
  if (way == GridWay::neighbours) {  // TeamPolish::rotate_neighbours
    const T* const square = p.squares + place.at * n;
    const int begin = step % 2, i = place.top + thread % 32;
    for (int j = place.first + thread / 32; j < min(place.first + 32, n); j += Tile::kWarps) {
      const int one = begin + (j - begin) / 2 * 2, two = one + 1;
      const bool paired = j >= begin && two < n && i < height;
      const T angle = paired ? angles[one * n + two] : T(0);
      if (i >= height) continue;
      T x = from[std::int64_t(paired ? one : j) * height + i], y = 0;
      if (paired) {
        y = from[std::int64_t(two) * height + i];
        if (angle != 0) {
          const T gap = square[two] - square[one];
          const ColumnRotation<T> rotation(square[one], square[two],
                                           gap == 0 ? T(1) : -angle * gap);
          rotation(x, y);
        }
      }
      to[std::int64_t(j) * height + i] = paired && j == two ? y : x;
    }
    return;
  }
  const T* const by = way == GridWay::one_term ? angles : all_squares + place.at * n * n;
  const GridFactor<T> before = p.columns(from, height, height), factor = p.columns(by, n, n);
  const bool turns = way == GridWay::regroup;
  if (turns)
    tile.template multiply<false, false>(BlockTeam<32, 1>{}, n, place.top, place.first, before,
                                         factor);
  else
    tile.template multiply<false, true>(BlockTeam<32, 1>{}, n, place.top, place.first, before,
                                        factor);
  typename Tile::Own own{};
  if (!turns) own = Tile::read_own(thread, place.top, place.first, before);
  __syncthreads();
#pragma unroll
  for (int w = 0; w < Tile::kOwn; ++w) {
    const GridFour<T> sum = tile.sum_of_own(thread, w);
#pragma unroll
    for (int e = 0; e < 4; ++e) own.at[w].at[e] += sum.at[e];
  }
  Tile::write_own(thread, place.top, place.first, own, to, height, height, n);
}

}  // namespace keel::cuda
