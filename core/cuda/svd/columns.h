#pragma once

// Columns of a matrix and the threads that work on them together.
//
// A group of lanes, part of one warp, works on a column: lane l has the packs (16 bytes) l, l + kLanes, ... of it.
// Sums over lanes use warp shuffles, so all groups of a warp must reach the same sums, also those without a column.
//
// Team is BlockTeam or ClusterTeam (threads.cuh). Tests on the host have teams of their own with the same members.

#include <cmath>
#include <cstdint>

#include "cuda/svd/layouts.h"
#include "formulas/order.h"

namespace keel::cuda {

template <typename T, typename Team>
class ColumnWork {
 public:
  using Pack = SvdPack<T>;
  static constexpr int kPack = Pack::kCount, kLanes = Team::kLanes, kHeld = Team::kHeld;

  KEEL_HOST_DEVICE explicit ColumnWork(const Team& team) : team_(team) {}

  KEEL_HOST_DEVICE const Team& team() const { return team_; }
  KEEL_HOST_DEVICE static int packs_of(int length) { return (length + kPack - 1) / kPack; }
  KEEL_HOST_DEVICE static Pack& pack(T* column, int c) {
    return reinterpret_cast<Pack*>(column)[c];
  }

  /// Calls body(j, exists) for the columns first <= j < count, one per group. Every group makes the same number of
  /// calls.
  template <typename Body>
  KEEL_HOST_DEVICE void for_each_column(int first, int count, const Body& body) const {
    for (int base = first; base < count; base += team_.groups()) {
      const int j = base + team_.group();
      body(j, j < count);
    }
  }

  /// Calls body(i, j) for all entries. Neighbouring threads have neighbouring columns (`along_rows`) or rows.
  template <typename Body>
  KEEL_HOST_DEVICE void for_each_entry(int rows, int count, bool along_rows,
                                       const Body& body) const {
    const unsigned fast = unsigned(along_rows ? count : rows),
                   all = unsigned(rows) * unsigned(count);
    KEEL_UNROLL_BY(8)
    for (unsigned at = unsigned(team_.thread()); at < all; at += unsigned(team_.size())) {
      const int slow = int(at / fast), quick = int(at % fast);
      body(along_rows ? slow : quick, along_rows ? quick : slow);
    }
  }

  /// This lane's first pack at or after `first`. A pack always belongs to the same lane, which then reads its own
  /// writes.
  KEEL_HOST_DEVICE int own_from(int first) const {
    return first + ((team_.lane() - first) & (kLanes - 1));
  }

  /// The group's sum of x y over the packs from `first` to `packs`.
  KEEL_HOST_DEVICE T dot(bool exists, int first, int packs, T* x, T* y) const {
    T sum = 0;
    if (exists)
      for (int c = own_from(first); c < packs; c += kLanes) {
        const Pack a = pack(x, c), b = pack(y, c);
        KEEL_UNROLL
        for (int e = 0; e < kPack; ++e) sum += a.at[e] * b.at[e];
      }
    return team_.sum(sum);
  }

  /// at[k] = the index of the k-th largest size. Equal sizes keep their order. Has no barrier.
  KEEL_HOST_DEVICE void sort(int count, const T* sizes, int* at) const {
    for (int i = team_.thread(); i < count; i += team_.size()) {
      at[count_before(sizes, count, i, sizes[i], 0, 1)] = i;
    }
  }

  /// The sign that makes the largest entry(i), i < length, positive. Among equal magnitudes the one with the smallest
  /// place(i) < length counts. All groups of a warp must call it together.
  template <typename Entry, typename Place>
  KEEL_HOST_DEVICE T sign(bool exists, int length, const Entry& entry, const Place& place) const {
    T peak = 0, size = -1;
    int first = length;
    if (exists)
      for (int i = team_.lane(); i < length; i += kLanes) {
        const T x = entry(i);
        const int at = place(i);
        if (std::abs(x) > size || (std::abs(x) == size && at < first)) {
          size = std::abs(x);
          peak = x;
          first = at;
        }
      }
    const T top = team_.largest(size);
    const T chosen = -team_.largest(size == top ? T(-first) : T(-length));  // exact in T
    const bool negative = size == top && T(first) == chosen && peak < 0;
    return team_.largest(negative ? T(1) : T(0)) > 0 ? T(-1) : T(1);
  }

  /// A lane's part of a column, in registers.
  struct Held {
    Pack at[kHeld];

    /// Calls body(x, r) for all its numbers x in rows r.
    template <typename Body>
    KEEL_HOST_DEVICE void for_each(const Team& team, const Body& body) {
      KEEL_UNROLL
      for (int h = 0; h < kHeld; ++h) {
        KEEL_UNROLL
        for (int e = 0; e < kPack; ++e) body(at[h].at[e], (team.lane() + h * kLanes) * kPack + e);
      }
    }
  };
  KEEL_HOST_DEVICE static constexpr bool holds(int packs) {
    return Team::kAllHeld || packs <= kHeld * kLanes;
  }

  /// Reads zeros beyond the end, and if the column does not exist.
  KEEL_HOST_DEVICE Held take(bool exists, int packs, T* column) const {
    Held held;
    KEEL_UNROLL
    for (int h = 0; h < kHeld; ++h) {
      const int c = team_.lane() + h * kLanes;
      held.at[h] = exists && c < packs ? pack(column, c) : Pack{};
    }
    return held;
  }
  KEEL_HOST_DEVICE void put(const Held& held, int packs, T* column) const {
    KEEL_UNROLL
    for (int h = 0; h < kHeld; ++h) {
      const int c = team_.lane() + h * kLanes;
      if (c < packs) pack(column, c) = held.at[h];
    }
  }
  KEEL_HOST_DEVICE T dot(const Held& x, const Held& y) const {
    T sums[kHeld] = {};
    KEEL_UNROLL
    for (int h = 0; h < kHeld; ++h) {
      KEEL_UNROLL
      for (int e = 0; e < kPack; ++e) sums[h] += x.at[h].at[e] * y.at[h].at[e];
    }
    KEEL_UNROLL
    for (int h = 1; h < kHeld; ++h) sums[0] += sums[h];
    return team_.sum(sums[0]);
  }
  /// y += factor x
  KEEL_HOST_DEVICE static void add(T factor, const Held& x, Held& y) {
    KEEL_UNROLL
    for (int h = 0; h < kHeld; ++h) {
      KEEL_UNROLL
      for (int e = 0; e < kPack; ++e) y.at[h].at[e] += factor * x.at[h].at[e];
    }
  }

 private:
  const Team& team_;
};

}  // namespace keel::cuda
