#pragma once

// One step of TeamPolish::polish (polish.h): measures the angles between columns, computes the correction, applies
// it.

#include <cmath>
#include <limits>

#include "cuda/launch/early_start.cuh"
#include "cuda/svd/polish_grid/problem.cuh"
#include "cuda/svd/polish_grid/tile.cuh"

namespace keel::cuda {

/// Computes K, entry (i, j) at j n + i, from the products of columns, and its properties, like TeamPolish::measure.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads)
    grid_look(GridProblem<T> p, int step, T* all_angles) {
  constexpr int kSize = GridTile<T>::kSize;
  __shared__ GridTile<T> tile;
  __shared__ T squares[2][kSize];  // of the tile's rows and of its columns
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  const int n = p.n, state = p.state(step, place.at);
  if (state & (kIsDone | kIsLeft)) return;
  const T* const x = p.stack(state, place.at);
  T* const angles = all_angles + place.at * n * n;
  const int side = int(threadIdx.x) / kSize, own = int(threadIdx.x) % kSize;
  T square = 0;
  const auto add_squares = [&] {
    for (int k = 0; k < kSize; ++k) {
      const T entry = side == 0 ? tile.a[k][own] : tile.b[k][own];
      square = fma(entry, entry, square);
    }
  };
  // The sums are stored in place of the products until every thread has its squares.
  tile.template multiply<true, true>(
      n, n, p.m, place.top, place.first,
      [&](int i, int k) { return x[std::int64_t(i) * p.height() + k]; },
      [&](int k, int j) { return x[std::int64_t(j) * p.height() + k]; },
      [&](int i, int j, T sum) { tile.a[j - place.first][i - place.top] = sum; }, add_squares);
  squares[side][own] = square;
  __syncthreads();
  if (place.top == place.first && side == 0 && place.top + own < n)
    p.squares[place.at * n + place.top + own] = square;
  const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(n));
  GridFound<T> found{};
  bool turns = false;
  for (int column = side; column < kSize; column += 2) {
    const int i = place.top + own, j = place.first + column;
    if (i >= n || j >= n) continue;
    T angle = 0;
    if (i != j) {
      const T w = tile.a[column][own], mine = squares[1][column], other = squares[0][own];
      const T mine_size = std::sqrt(mine), other_size = std::sqrt(other);
      angle = polish_angle(w, mine, other, tolerance * other_size * mine_size, turns);
      const T cosine = w / (other_size * mine_size), part = angle * other_size / mine_size;
      found.cosines += cosine * cosine;
      found.moved += part * part;
    }
    angles[j * n + i] = angle;
    found.angles += polish_square(angle);
  }
  found.turns = T(turns);
  found.add_block();
  if (threadIdx.x == 0) p.found[place.at * p.tiles(n) * p.tiles(n) + place.tile] = found;
}

/// to = factor left right + of_one one [+ two], n x n each, entry (i, j) at j n + i.
template <typename T>
__device__ void grid_product(const GridProblem<T>& p, const GridPlace& place, T factor,
                             const T* left, const T* right, T of_one, const T* one, const T* two,
                             T* to) {
  __shared__ GridTile<T> tile;
  const std::int64_t offset = place.at * p.n * p.n;
  const int n = p.n;
  tile.template multiply<false, true>(
      n, n, n, place.top, place.first, [&](int i, int k) { return left[offset + k * n + i]; },
      [&](int k, int j) { return right[offset + j * n + k]; },
      [&](int i, int j, T sum) {
        const std::int64_t where = offset + j * n + i;
        to[where] = factor * sum + of_one * one[where] + (two == nullptr ? T(0) : two[where]);
      });
}

/// The correction without its leading I. For two terms: c K + c^2 K^2 / 2, where c is the share of K. For three: Q =
/// K^2.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads)
    grid_square_angles(GridProblem<T> p, int step, const T* angles, T* squares) {
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  if (p.state(step, place.at) & (kIsDone | kIsLeft)) return;
  const GridFound<T> found = p.find(place.at);
  const GridWay way = p.way(found);
  const bool two = way == GridWay::two_terms;
  const T share = p.share(found);
  if (two || way == GridWay::three_terms)
    grid_product<T>(p, place, two ? share * share / 2 : T(1), angles, angles, two ? share : T(0),
                    angles, nullptr, squares);
}

/// S = Q / 2 + 3 Q^2 / 8
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads)
    grid_third_term(GridProblem<T> p, int step, const T* squares, T* sums) {
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  if (p.state(step, place.at) & (kIsDone | kIsLeft)) return;
  if (p.way(p.find(place.at)) == GridWay::three_terms)
    grid_product<T>(p, place, T(0.375), squares, squares, T(0.5), squares, nullptr, sums);
}

/// (I + K) (I + S) - I = K S + K + S, written over Q.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads)
    grid_join_terms(GridProblem<T> p, int step, const T* angles, const T* sums, T* squares) {
  await_previous();
  let_next_start();
  const GridPlace place(p.n, p.n);
  if (p.state(step, place.at) & (kIsDone | kIsLeft)) return;
  if (p.way(p.find(place.at)) == GridWay::three_terms)
    grid_product<T>(p, place, T(1), angles, sums, T(1), angles, sums, squares);
}

/// Applies the correction to X and J, into the other buffer, and sets the state for the next step.
template <typename T>
__global__ void __launch_bounds__(GridTile<T>::kThreads)
    grid_turn(GridProblem<T> p, int step, const T* all_angles, const T* all_squares) {
  __shared__ GridTile<T> tile;
  await_previous();
  let_next_start();
  const GridPlace place(p.height(), p.n);
  const int n = p.n, height = p.height(), state = p.state(step, place.at);
  int& next = p.state(step + 1, place.at);
  const bool tells = place.tile == 0 && threadIdx.x == 0;
  if (state & (kIsDone | kIsLeft)) {
    if (tells) next = state;
    return;
  }
  const GridFound<T> found = p.find(place.at);
  const GridWay way = p.way(found);
  if (way == GridWay::none || way == GridWay::left) {
    if (tells) next = state | (way == GridWay::none ? kIsDone : kIsLeft);
    return;
  }
  const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(n));
  const bool suffices = way != GridWay::neighbours && !(p.share(found) < 1) &&
                        16 * 4 * found.cosines * found.moved <= tolerance * tolerance;
  if (tells) next = (state ^ kInSecondBuffer) | (suffices ? kIsDone : 0);
  const T* const from = p.stack(state, place.at);
  T* const to = p.stack(state ^ kInSecondBuffer, place.at);
  const T* const angles = all_angles + place.at * n * n;
  if (way == GridWay::neighbours) {  // TeamPolish::turn_neighbours
    const T* const square = p.squares + place.at * n;
    const int begin = step % 2, i = place.top + int(threadIdx.x) % 32;
    for (int j = place.first + int(threadIdx.x) / 32; j < min(place.first + 32, n); j += 2) {
      const int one = begin + (j - begin) / 2 * 2, two = one + 1;
      const bool paired = j >= begin && two < n && i < height;
      const T angle = paired ? angles[one * n + two] : T(0);
      if (i >= height) continue;
      T x = from[std::int64_t(paired ? one : j) * height + i], y = 0;
      if (paired) {
        y = from[std::int64_t(two) * height + i];
        if (angle != 0) {
          const T gap = square[two] - square[one];
          const ColumnTurn<T> turn(square[one], square[two], gap == 0 ? T(1) : -angle * gap);
          turn(x, y);
        }
      }
      to[std::int64_t(j) * height + i] = paired && j == two ? y : x;
    }
    return;
  }
  const T* const by = way == GridWay::one_term ? angles : all_squares + place.at * n * n;
  tile.template multiply<false, true>(
      height, n, n, place.top, place.first,
      [&](int i, int k) { return from[std::int64_t(k) * height + i]; },
      [&](int k, int j) { return by[j * n + k]; },
      [&](int i, int j, T sum) {
        const std::int64_t where = std::int64_t(j) * height + i;
        to[where] = from[where] + sum;
      });
}

}  // namespace keel::cuda
