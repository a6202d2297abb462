#pragma once

// Householder's QR by a team of threads, and its reflections applied to other vectors.

#include <cmath>

#include "cuda/svd/columns.h"
#include "formulas/rotation.h"

namespace keel::cuda {

/// Columns are `step` numbers apart. `numbers` has room for 5 numbers for each of `count` columns. A column k whose
/// remaining length is at most noise(k) is only rounding.
template <typename T, typename Team>
class Reflections : public ColumnWork<T, Team> {
  using Base = ColumnWork<T, Team>;
  using Base::add, Base::dot, Base::holds, Base::kLanes, Base::kPack, Base::own_from, Base::pack,
      Base::packs_of, Base::put, Base::take, Base::team;
  using typename Base::Held;
  using typename Base::Pack;

 public:
  using Base::for_each_column;

  KEEL_HOST_DEVICE Reflections(const Team& team, T* columns, int step, T* numbers, int count)
      : Base(team),
        columns_(columns),
        step_(step),
        scale_(numbers),
        lead_(scale_ + count),
        diagonal_(lead_ + count),
        noise_(diagonal_ + count),
        tail_(noise_ + count) {}

  KEEL_HOST_DEVICE T* column(int j) const { return columns_ + std::int64_t(j) * step_; }
  KEEL_HOST_DEVICE T diagonal(int k) const { return diagonal_[k]; }  ///< of R
  KEEL_HOST_DEVICE T& noise(int k) const { return noise_[k]; }

  /// Factors the first `count` columns, of `rows` entries: R above the diagonal and in diagonal(), reflectors v below
  /// the diagonal with their first entry stored separately. A reflection is I - scale v v^T.
  KEEL_HOST_DEVICE void factor(int rows, int count) {
    const int packs = packs_of(rows);
    for_each_column(0, 1, [&](int j, bool exists) { measure_tail(j, exists, packs); });
    team().sync();
    for (int k = 0; k < count; ++k) {
      const T alpha = column(k)[k], square = tail_[k];
      const T norm = std::sqrt(alpha * alpha + square);
      const bool is_noise = norm <= noise_[k];
      const bool reflect = square > kTinySvdSquare<T> && !is_noise;  // the same in all threads
      const T scale = reflect ? 1 / (norm * (norm + std::abs(alpha))) : T(0);
      const T lead = alpha < 0 ? alpha - norm : alpha + norm;
      if (team().thread() == 0) {
        scale_[k] = scale;
        lead_[k] = lead;
        diagonal_[k] = is_noise ? T(0) : !reflect ? alpha : alpha < 0 ? norm : -norm;
      }
      if (holds(packs))
        reflect_held(k, count, packs, scale, lead);
      else
        reflect_others(k, count, packs, scale, lead);
      team().sync();
    }
  }

  /// Call it once R has been read: stores the reflectors completely, with zeros above.
  KEEL_HOST_DEVICE void complete(int count) {
    for (int k = team().group(); k < count; k += team().groups())
      for (int i = team().lane(); i <= k; i += kLanes) column(k)[i] = i == k ? lead_[k] : T(0);
    team().sync();
  }

  /// Applies the first `count` reflections, last one first, to a vector of `packs` packs. All groups of a warp must
  /// call it together.
  KEEL_HOST_DEVICE void apply_back(int count, int packs, T* x, bool exists) const {
    if (holds(packs)) {
      Held held = take(exists, packs, x);
      for (int k = count - 1; k >= 0; --k) {
        const T scale = scale_[k];
        if (scale == 0) continue;
        const Held v = take(true, packs, column(k));
        add(-scale * dot(v, held), v, held);
      }
      if (exists) put(held, packs, x);
      return;
    }
    for (int k = count - 1; k >= 0; --k) {
      const T scale = scale_[k];
      if (scale == 0) continue;
      T* const v = column(k);
      const T part = scale * dot(exists, k / kPack, packs, v, x);
      if (!exists) continue;
      for (int c = own_from(k / kPack); c < packs; c += kLanes) {
        const Pack a = pack(v, c);
        Pack b = pack(x, c);
        KEEL_UNROLL
        for (int e = 0; e < kPack; ++e) b.at[e] -= part * a.at[e];
        pack(x, c) = b;
      }
    }
  }

 private:
  /// Entry r of reflector k, where `own` is that entry of column k.
  KEEL_HOST_DEVICE static T entry(int k, int r, T own, T lead) {
    return r > k ? own : r == k ? lead : T(0);
  }

  /// Applies reflection k to the columns after it. `scale` is 0 if there is no reflection.
  KEEL_HOST_DEVICE void reflect_held(int k, int count, int packs, T scale, T lead) {
    Held v = take(true, packs, column(k));
    v.for_each(team(), [&](T& x, int r) { x = entry(k, r, x, lead); });
    for_each_column(k + 1, count, [&](int j, bool exists) {
      T* const other = column(exists ? j : k);
      Held x = take(exists, packs, other);
      if (scale != 0) {
        add(-scale * dot(v, x), v, x);
        if (exists) put(x, packs, other);
      }
      // The group with the next column measures it at once.
      if (j - team().group() == k + 1) {
        T sum = 0;
        x.for_each(team(), [&](const T& number, int r) { sum += r > j ? number * number : T(0); });
        sum = team().sum(sum);
        if (j == k + 1 && team().lane() == 0) tail_[j] = sum;
      }
    });
  }

  /// The same for columns longer than a group can hold.
  KEEL_HOST_DEVICE void reflect_others(int k, int count, int packs, T scale, T lead) {
    T* const own = column(k);
    const int first = k / kPack;
    for_each_column(k + 1, count, [&](int j, bool exists) {
      T* const other = column(exists ? j : k);
      if (scale != 0) {
        T sum = 0;
        if (exists)
          for (int c = own_from(first); c < packs; c += kLanes) {
            const Pack v = pack(own, c), x = pack(other, c);
            KEEL_UNROLL
            for (int e = 0; e < kPack; ++e) sum += entry(k, c * kPack + e, v.at[e], lead) * x.at[e];
          }
        const T part = scale * team().sum(sum);
        if (exists)
          for (int c = own_from(first); c < packs; c += kLanes) {
            const Pack v = pack(own, c);
            Pack x = pack(other, c);
            KEEL_UNROLL
            for (int e = 0; e < kPack; ++e)
              x.at[e] -= part * entry(k, c * kPack + e, v.at[e], lead);
            pack(other, c) = x;
          }
      }
      if (j - team().group() == k + 1) measure_tail(j, exists && j == k + 1, packs);
    });
  }

  /// The squared length of column j below its diagonal. All groups of a warp must call it together.
  KEEL_HOST_DEVICE void measure_tail(int j, bool exists, int packs) {
    T sum = 0;
    if (exists)
      for (int c = own_from(j / kPack); c < packs; c += kLanes) {
        const Pack x = pack(column(j), c);
        KEEL_UNROLL
        for (int e = 0; e < kPack; ++e) {
          const T below = c * kPack + e > j ? x.at[e] : T(0);
          sum += below * below;
        }
      }
    sum = team().sum(sum);
    if (exists && team().lane() == 0) tail_[j] = sum;
  }

  T* columns_;
  int step_;
  T *scale_, *lead_, *diagonal_, *noise_, *tail_;
};

}  // namespace keel::cuda
