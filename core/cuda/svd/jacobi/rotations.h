#pragma once

// One-sided Jacobi by a team of threads: rotates columns until they are orthogonal. The numbers below each column are
// rotated with it and accumulate the rotations. The pairs of a round have no column in common and are rotated at the
// same time.

#include <cmath>

#include "cuda/svd/columns.h"
#include "formulas/rotation.h"

namespace keel::cuda {

/// n columns, `step` apart, of 2 `half` numbers each; the first n of these are the column. `numbers` has room for 2
/// n.
template <typename T, typename Team>
class ColumnRotations : public ColumnWork<T, Team> {
  using Base = ColumnWork<T, Team>;
  using Base::dot, Base::for_each_column, Base::holds, Base::kHeld, Base::kLanes, Base::kPack,
      Base::pack, Base::put, Base::take, Base::team;
  using typename Base::Held;
  using typename Base::Pack;

 public:
  KEEL_HOST_DEVICE ColumnRotations(const Team& team, int n, T* columns, int half, int step,
                                   T* numbers)
      : Base(team),
        n_(n),
        packs_(half / kPack),
        step_(step),
        columns_(columns),
        square_(numbers),
        size_(numbers + n) {}

  KEEL_HOST_DEVICE T* column(int j) const { return columns_ + std::int64_t(j) * step_; }
  KEEL_HOST_DEVICE T size(int j) const { return size_[j]; }
  KEEL_HOST_DEVICE const T* sizes() const { return size_; }

  /// Returns whether the columns are orthogonal within the limit on sweeps.
  KEEL_HOST_DEVICE bool solve() {
    bool rotated = n_ > 1;
    for (int sweep = 0; sweep < kMaxSvdSweeps && rotated; ++sweep) rotated = rotate_all();
    measure();
    return !rotated;
  }

 private:
  KEEL_HOST_DEVICE void clear(int j) const {
    for (int c = team().lane(); c < packs_; c += kLanes) pack(column(j), c) = Pack{};
  }

  KEEL_HOST_DEVICE void measure() {
    for_each_column(0, n_, [&](int j, bool exists) {
      T* const own = column(exists ? j : 0);
      T square = dot(exists, 0, packs_, own, own);
      if (!exists) return;
      if (square < kTinySvdSquare<T>) {
        clear(j);
        square = 0;
      }
      if (team().lane() == 0) {
        square_[j] = square;
        size_[j] = std::sqrt(square);
      }
    });
    team().sync();
  }

  /// One sweep over all pairs of columns. Returns whether any was rotated.
  KEEL_HOST_DEVICE bool rotate_all() {
    const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(n_));
    measure();
    // A round robin: the last column stays, the others rotate.
    const int circle = n_ - 1 + n_ % 2, pairs = (circle + 1) / 2;
    bool rotated = false;
    for (int round = 0; round < circle; ++round) {
      for_each_column(0, pairs, [&](int i, bool exists) {
        const int one = i == 0 ? circle : round + i < circle ? round + i : round + i - circle;
        const int two = round >= i ? round - i : round - i + circle;
        const int p = one < two ? one : two, q = one < two ? two : one;
        const bool both = exists && q < n_;
        rotated = (holds(packs_) ? rotate_held(p, q, both, tolerance)
                                 : rotate_pair(p, q, both, tolerance)) ||
                  rotated;
      });
      team().sync();
    }
    return team().any(rotated);
  }

  /// Squared lengths of a pair of columns.
  struct Squares {
    T x, y;
  };
  KEEL_HOST_DEVICE Squares squares(int p, int q, bool exists) const {
    return {exists ? square_[p] : T(0), exists ? square_[q] : T(0)};
  }
  KEEL_HOST_DEVICE static bool rotates(const Squares& before, T product, T tolerance) {
    return before.x > 0 && before.y > 0 &&
           must_rotate(product, short_root(before.x), short_root(before.y), tolerance);
  }
  /// Whether a column has shrunk so much that it must be measured again.
  KEEL_HOST_DEVICE static bool is_lost(T before, T after) { return after < T(0.125) * before; }
  /// Whether the measured rest is only rounding.
  KEEL_HOST_DEVICE static bool is_noise(T before, T again) {
    return again < kSvdNoiseSquare<T> * before + kTinySvdSquare<T>;
  }
  KEEL_HOST_DEVICE void set(int p, int q, const Squares& after, bool rotated) {
    team().step();  // all lanes have read the old ones
    if (rotated && team().lane() == 0) {
      square_[p] = after.x;
      square_[q] = after.y;
    }
  }
  KEEL_HOST_DEVICE void fetch_below(bool exists, T* x, T* y) const {
    if (exists)
      for (int c = packs_ + team().lane(); c < 2 * packs_; c += kLanes) {
        team().fetch(&pack(x, c));
        team().fetch(&pack(y, c));
      }
  }

  KEEL_HOST_DEVICE static void rotate_both(const ColumnRotation<T>& rotation, Held& x, Held& y) {
    KEEL_UNROLL
    for (int h = 0; h < kHeld; ++h) {
      KEEL_UNROLL
      for (int e = 0; e < kPack; ++e) rotation(x.at[h].at[e], y.at[h].at[e]);
    }
  }

  KEEL_HOST_DEVICE bool rotate_held(int p, int q, bool exists, T tolerance) {
    T *const x = column(exists ? p : 0), *const y = column(exists ? q : 0);
    const Squares before = squares(p, q, exists);
    fetch_below(exists, x, y);
    Held a = take(exists, packs_, x), b = take(exists, packs_, y);
    const T product = dot(a, b);
    const bool rotated = rotates(before, product, tolerance);
    Squares after = before;
    if (rotated) {
      const ColumnRotation<T> rotation(before.x, before.y, product);
      after.x -= rotation.moved;
      after.y += rotation.moved;
      rotate_both(rotation, a, b);
      T *const below_x = x + packs_ * kPack, *const below_y = y + packs_ * kPack;
      Held c = take(true, packs_, below_x), d = take(true, packs_, below_y);
      rotate_both(rotation, c, d);
      put(c, packs_, below_x);
      put(d, packs_, below_y);
    }
    const bool x_lost = rotated && is_lost(before.x, after.x),
               y_lost = rotated && is_lost(before.y, after.y);
    if (team().any_in_step(x_lost || y_lost)) {
      const T x_again = dot(a, a), y_again = dot(b, b);
      if (x_lost) after.x = is_noise(before.x, x_again) ? T(0) : x_again;
      if (y_lost) after.y = is_noise(before.y, y_again) ? T(0) : y_again;
      if (x_lost && after.x == 0) a = Held{};
      if (y_lost && after.y == 0) b = Held{};
    }
    if (rotated) {
      put(a, packs_, x);
      put(b, packs_, y);
    }
    set(p, q, after, rotated);
    return rotated;
  }

  /// The same for columns longer than a group can hold.
  KEEL_HOST_DEVICE bool rotate_pair(int p, int q, bool exists, T tolerance) {
    T *const x = column(exists ? p : 0), *const y = column(exists ? q : 0);
    const Squares before = squares(p, q, exists);
    fetch_below(exists, x, y);
    const T product = dot(exists, 0, packs_, x, y);
    const bool rotated = rotates(before, product, tolerance);
    Squares after = before;
    if (rotated) {
      const ColumnRotation<T> rotation(before.x, before.y, product);
      after.x -= rotation.moved;
      after.y += rotation.moved;
      // Packs at the same row of a column and below it may belong to different lanes. Each lane processes its own in
      // both halves.
      for (const int half : {0, packs_})
        for (int c = half + team().lane(); c < half + packs_; c += kLanes) {
          Pack a = pack(x, c), b = pack(y, c);
          KEEL_UNROLL
          for (int e = 0; e < kPack; ++e) rotation(a.at[e], b.at[e]);
          pack(x, c) = a;
          pack(y, c) = b;
        }
    }
    const bool x_lost = rotated && is_lost(before.x, after.x),
               y_lost = rotated && is_lost(before.y, after.y);
    if (team().any_in_step(x_lost || y_lost)) {
      const T x_again = dot(x_lost, 0, packs_, x, x), y_again = dot(y_lost, 0, packs_, y, y);
      if (x_lost) after.x = is_noise(before.x, x_again) ? T(0) : x_again;
      if (y_lost) after.y = is_noise(before.y, y_again) ? T(0) : y_again;
      if (x_lost && after.x == 0) clear(p);
      if (y_lost && after.y == 0) clear(q);
    }
    set(p, q, after, rotated);
    return rotated;
  }

  int n_, packs_, step_;
  T *columns_, *square_, *size_;
};

}  // namespace keel::cuda
