#pragma once

// Matrix products by a team of threads that share the matrices. Columns are `step` numbers apart, padded with zeros,
// and columns of zeros follow the last. A thread computes a tile: one pack of rows of WIDE columns.
//
// Of the team this needs kTiles, total() and count() too.

#include "cuda/svd/columns.h"

namespace keel::cuda {

template <typename T, int WIDE, typename Team>
class TileWork : public ColumnWork<T, Team> {
  using Base = ColumnWork<T, Team>;

 public:
  using Base::kPack, Base::pack, Base::team;
  using typename Base::Pack;
  static constexpr int kWide = WIDE, kTiles = Team::kTiles;

  using Base::Base;

  /// out(i, j) = x_i . x_j, over `packs` packs. If there are more threads than tiles, several share the sums of a
  /// tile. Ends with a barrier.
  KEEL_HOST_DEVICE void gram(int columns, int packs, T* x, int step, T* out, int out_step) const {
    const int tiles = columns / kPack * (columns / kWide);
    const int shares = team().size() < 2 * tiles ? 1 : team().size() / tiles;
    const int share = shares > 1 ? team().thread() / tiles : 0;
    T sums[kWide][kPack];
    if (shares == 1) {
      for (int tile = team().thread(); tile < tiles; tile += team().size()) {
        sum_up_products(columns, tile, 0, packs, x, step, sums);
        put_products(columns, tile, false, sums, out, out_step);
      }
      team().sync();
      return;
    }
    const int tile = team().thread() - share * tiles, length = (packs + shares - 1) / shares;
    const int first = share * length, last = first + length < packs ? first + length : packs;
    if (share < shares) sum_up_products(columns, tile, first, last, x, step, sums);
    for (int s = 0; s < shares; ++s) {
      if (share == s) put_products(columns, tile, s > 0, sums, out, out_step);
      team().sync();
    }
  }

  /// x = [x +] factor x y for `packs` packs of rows. y may be x if the team can hold all of it at once. `busy` is
  /// null, or says which groups of kWide columns of y are not zero; use it only if `adds`.
  KEEL_HOST_DEVICE void multiply(int columns, int packs, T* x, int step, T* y, int y_step, T factor,
                                 bool adds, const int* busy = nullptr) const {
    const int across = columns / kWide, most = kTiles * team().size() / across;
    for (int top = 0; top < packs; top += most) {
      const int rows = packs - top < most ? packs - top : most, tiles = rows * across;
      T sums[kTiles][kWide][kPack];
      KEEL_UNROLL
      for (int h = 0; h < kTiles; ++h) {
        const int tile = team().thread() + h * team().size();
        if (tile < tiles && (busy == nullptr || busy[tile / rows] != 0)) {
          sum_up(columns, x + (top + tile % rows) * kPack, step, y + tile / rows * kWide * y_step,
                 y_step, sums[h]);
        }
      }
      team().sync();  // all threads have read
      KEEL_UNROLL
      for (int h = 0; h < kTiles; ++h) {
        const int tile = team().thread() + h * team().size();
        if (tile >= tiles || (busy != nullptr && busy[tile / rows] == 0)) continue;
        KEEL_UNROLL
        for (int b = 0; b < kWide; ++b) {
          Pack& to = pack(x + (tile / rows * kWide + b) * step, top + tile % rows);
          Pack old = adds ? to : Pack{};
          KEEL_UNROLL
          for (int e = 0; e < kPack; ++e) old.at[e] += factor * sums[h][b][e];
          to = old;
        }
      }
      team().sync();
    }
  }

  /// As ColumnWork::sort, by a group per size, which is faster for few. All groups of a warp must call it together.
  KEEL_HOST_DEVICE void sort(int count, const T* sizes, int* at) const {
    this->for_each_column(0, count, [&](int i, bool exists) {
      const T own = exists ? sizes[i] : T(0);
      const int place = team().sum(count_before(sizes, count, i, own, team().lane(), Team::kLanes));
      if (exists && team().lane() == 0) at[place] = i;
    });
  }

 private:
  /// A tile of products: kWide columns, and rows `first`, `first` + across, ..., so that neighbouring threads have
  /// neighbouring columns, which start in different banks. Rows after the last column's stripe are computed by the
  /// mirrored tile.
  struct ProductTile {
    int across, first, second, last;
    KEEL_HOST_DEVICE ProductTile(int columns, int tile)
        : across(columns / kPack),
          first(tile % across),
          second(tile / across * kWide),
          last((second + kWide - 1) / across) {}
  };
  KEEL_HOST_DEVICE static void sum_up_products(int columns, int tile, int begin, int end, T* x,
                                               int step, T (&sums)[kWide][kPack]) {
    const ProductTile t(columns, tile);
    KEEL_UNROLL
    for (int b = 0; b < kWide; ++b) {
      KEEL_UNROLL
      for (int a = 0; a < kPack; ++a) sums[b][a] = 0;
    }
    KEEL_UNROLL_BY(kWide < 8 ? 2 : 1)
    for (int c = begin; c < end; ++c) {
      Pack u[kPack];
      KEEL_UNROLL
      for (int a = 0; a < kPack; ++a)
        if (a <= t.last) u[a] = pack(x + (t.first + a * t.across) * step, c);
      KEEL_UNROLL
      for (int b = 0; b < kWide; ++b) {
        const Pack v = pack(x + (t.second + b) * step, c);
        KEEL_UNROLL
        for (int a = 0; a < kPack; ++a) {
          if (a > t.last) continue;
          KEEL_UNROLL
          for (int e = 0; e < kPack; ++e) sums[b][a] += u[a].at[e] * v.at[e];
        }
      }
    }
  }
  KEEL_HOST_DEVICE static void put_products(int columns, int tile, bool adds,
                                            const T (&sums)[kWide][kPack], T* out, int out_step) {
    const ProductTile t(columns, tile);
    KEEL_UNROLL
    for (int b = 0; b < kWide; ++b) {
      const int j = t.second + b, stripe = j / t.across;
      KEEL_UNROLL
      for (int a = 0; a < kPack; ++a) {
        if (a > stripe) continue;
        const int i = t.first + a * t.across;
        T& to = out[j * out_step + i];
        to = (adds ? to : T(0)) + sums[b][a];
        if (a < stripe) out[i * out_step + j] = to;
      }
    }
  }

  KEEL_HOST_DEVICE static void sum_up(int columns, T* x, int step, T* y, int y_step,
                                      T (&sums)[kWide][kPack]) {
    KEEL_UNROLL
    for (int b = 0; b < kWide; ++b) {
      KEEL_UNROLL
      for (int e = 0; e < kPack; ++e) sums[b][e] = 0;
    }
    KEEL_UNROLL_BY(kWide < 8 ? 2 : 1)
    for (int k = 0; k < columns; k += kPack) {
      Pack u[kPack];
      KEEL_UNROLL
      for (int a = 0; a < kPack; ++a) u[a] = pack(x + (k + a) * step, 0);
      KEEL_UNROLL
      for (int b = 0; b < kWide; ++b) {
        const Pack v = pack(y + b * y_step + k, 0);
        KEEL_UNROLL
        for (int a = 0; a < kPack; ++a) {
          KEEL_UNROLL
          for (int e = 0; e < kPack; ++e) sums[b][e] += u[a].at[e] * v.at[a];
        }
      }
    }
  }
};

}  // namespace keel::cuda
