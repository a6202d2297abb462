#pragma once

// A tile of K: the angles between 32 columns of X and 32 others. Compare TeamPolish::measure of polish/math.h.

#include <cmath>
#include <limits>

#include "cuda/svd/polish/grid/tile.h"
#include "formulas/polish_reach.h"

namespace keel::cuda {

/// Properties of the angles between columns. Compare TeamPolish::Found of polish/math.h.
template <typename T>
struct alignas(16) GridFound {
  T angles, cosines, moved, rotates;
  T apart;  ///< of `angles`, the part of those up to PolishReach::kApart

  KEEL_HOST_DEVICE void add(const GridFound& other) {
    angles += other.angles;
    cosines += other.cosines;
    moved += other.moved;
    rotates += other.rotates;
    apart += other.apart;
  }
};

/// The shared memory of a block.
template <typename T>
struct GridAngles {
  using Tile = GridTile<T>;
  static constexpr int kSize = Tile::kSize;
  Tile tile;
  /// Each warp's part of the squared lengths, for the tile's rows and for its columns.
  T of_warp[2][Tile::kWarps][kSize];
  T square[2][kSize], size[2][kSize], inverse[2][kSize];

  /// Computes products and squared lengths. A line of `x` is a column of X.
  template <typename Team>
  KEEL_HOST_DEVICE void multiply(const Team& team, const GridFactor<T>& x, int top, int first) {
    const int thread = team.thread(), warp = thread / 32, lane = thread % 32;
    T of_row = 0, of_column = 0;
    tile.template multiply<true, true>(team, x.length, top, first, x, x,
                                       [&](const auto& a, const auto& b) {
                                         KEEL_UNROLL
                                         for (int k = 0; k < Tile::kDepth; ++k) {
                                           of_row = std::fma(a[k][lane], a[k][lane], of_row);
                                           of_column = std::fma(b[k][lane], b[k][lane], of_column);
                                         }
                                       });
    of_warp[0][warp][lane] = of_row;
    of_warp[1][warp][lane] = of_column;
    team.sync();
    // The order of the sum is fixed, so a column's square is the same in every tile.
    if (warp < 2) {
      const auto& part = of_warp[warp];
      const T sum = (part[0][lane] + part[1][lane]) + (part[2][lane] + part[3][lane]);
      square[warp][lane] = sum;
      size[warp][lane] = std::sqrt(sum);
      inverse[warp][lane] = 1 / size[warp][lane];
    }
    team.sync();
  }

  /// Writes a thread's angles, entry (i, j) at j n + i, and returns their properties.
  KEEL_HOST_DEVICE GridFound<T> measure(int thread, int n, int top, int first, T* angles) const {
    const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(n));
    const int row = thread % kSize, i = top + row;
    GridFound<T> found{};
    bool rotates = false;
    KEEL_UNROLL
    for (int f = 0; f < kSize / Tile::kWarps; ++f) {
      const int column = thread / kSize + f * Tile::kWarps, j = first + column;
      if (i >= n || j >= n) continue;
      T angle = 0;
      if (i != j) {
        const T w = tile.sum(row, column), other_size = size[0][row], mine_size = size[1][column];
        angle = polish_angle(w, square[1][column], square[0][row],
                             tolerance * other_size * mine_size, rotates);
        const T cosine = w * inverse[0][row] * inverse[1][column],
                part = angle * other_size * inverse[1][column];
        found.cosines += cosine * cosine;
        found.moved += part * part;
      }
      angles[j * n + i] = angle;
      found.angles += polish_square(angle);
      if (std::abs(angle) <= PolishReach<T>::kApart) found.apart += angle * angle;
    }
    found.rotates = T(rotates);
    return found;
  }
};

}  // namespace keel::cuda
