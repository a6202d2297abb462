#pragma once

// One step of TeamPolish::polish (polish/math.h): measures the angles between columns, computes the correction, applies
// it.

#include <cmath>
#include <limits>

#include "cuda/launch/launch.h"
#include "cuda/svd/polish/grid/problem.cuh"

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
/// K^2.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_square_angles(GridProblem<T> p, int step, const T* angles, T* squares) {
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  GridFound<T> found = p.found_by_lane(place.at);
  if (p.state(step, place.at) & (kDone | kUnsolved)) return;
  found = sum_of_lanes(found);
  const GridWay way = p.way(found);
  const bool two = way == GridWay::two_terms;
  const T share = p.share(found);
  if (two || way == GridWay::three_terms)
    grid_product<T>(p, place, two ? share * share / 2 : T(1), angles, angles, two ? share : T(0),
                    angles, nullptr, squares);
}

/// S = Q / 2 + 3 Q^2 / 8
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_third_term(GridProblem<T> p, int step, const T* squares, T* sums) {
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  const GridFound<T> found = p.found_by_lane(place.at);
  if (p.state(step, place.at) & (kDone | kUnsolved)) return;
  if (p.way(sum_of_lanes(found)) == GridWay::three_terms)
    grid_product<T>(p, place, T(0.375), squares, squares, T(0.5), squares, nullptr, sums);
}

/// (I + K) (I + S) - I = K S + K + S, written over Q.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_join_terms(GridProblem<T> p, int step, const T* angles, const T* sums, T* squares) {
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  const GridFound<T> found = p.found_by_lane(place.at);
  if (p.state(step, place.at) & (kDone | kUnsolved)) return;
  if (p.way(sum_of_lanes(found)) == GridWay::three_terms)
    grid_product<T>(p, place, T(1), angles, sums, T(1), angles, sums, squares);
}

/// Applies the correction to X and J, into the other buffer, and sets the state for the next step.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads, GridTile<T>::kBlocks)
    grid_correct(GridProblem<T> p, int step, const T* all_angles, const T* all_squares) {
  using Tile = GridTile<T>;
  __shared__ Tile tile;
  await_previous();
  let_next_start();
  const GridPlace place(p.height(), p.n);
  GridFound<T> found = p.found_by_lane(place.at);
  const int n = p.n, thread = int(threadIdx.x), height = p.height(),
            state = p.state(step, place.at);
  int& next = p.state(step + 1, place.at);
  const bool sets_state = place.tile == 0 && thread == 0;
  if (state & (kDone | kUnsolved)) {
    if (sets_state) next = state;
    return;
  }
  found = sum_of_lanes(found);
  const GridWay way = p.way(found);
  if (way == GridWay::none || way == GridWay::none_fits) {
    if (sets_state) next = state | (way == GridWay::none ? kDone : kUnsolved);
    return;
  }
  const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(n));
  const bool suffices = way != GridWay::neighbours && !(p.share(found) < 1) &&
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
  const GridFactor<T> before = p.columns(from, height, height);
  tile.template multiply<false, true>(BlockTeam<32, 1>{}, n, place.top, place.first, before,
                                      p.columns(by, n, n));
  typename Tile::Own own = Tile::read_own(thread, place.top, place.first, before);
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
