#pragma once

// The secular equation of a merge (formulas/secular.h), with its terms shared out over the lanes of a
// team.

#include "cuda/eigh/block/team.cuh"

namespace keel::cuda {

using keel::secular_squares;
using keel::secular_value;
using keel::secular_weight;  // that of other teams than the one below

/// One merge: rows [base, base + count), joined at `seam`.
template <typename T>
struct Merge {
  int base, count, seam;
  T rho;      ///< the update is rho z z^T
  T sign;     ///< of the torn coupling
  int alive;  ///< number of poles that are not deflated
  int rotations;
};

/// The lane's share of a merge's poles and weights, as a team of secular_root: in registers where
/// there is room. It is worked on a few at a time, stage by stage: the compiler would work on one
/// after another.
template <typename T, int N>
struct MergeTerms : Team<T, N> {
  using Members = Team<T, N>;
  static constexpr int kOwn = Members::kOwn, kAtOnce = kOwn < 4 ? kOwn : 4;
  static constexpr bool kHeld = kOwn * sizeof(T) <= 64;
  struct Some {
    T pole[kAtOnce], z[kAtOnce];
  };
  const MergeStorage<T, N>& s;
  int size;  ///< of the merge at most; the same for all threads
  int base, alive;
  Some held[kHeld ? kOwn / kAtOnce : 1];

  __device__ MergeTerms(const Members& team, int largest, const Merge<T>& m,
                        const MergeStorage<T, N>& storage)
      : Members(team), s(storage), size(largest), base(m.base), alive(m.alive) {
    if constexpr (kHeld) {
#pragma unroll
      for (int i = 0; i < kOwn; i += kAtOnce)
        if (Members::kLanes * i < size) held[i / kAtOnce] = loaded(i);
    }
  }
  __device__ Some loaded(int first) const {
    Some some;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const bool exists = index(first + i) < alive;
      // Beyond the end: far away, with weight zero.
      some.pole[i] = exists ? s.pole[base + index(first + i)] : T(1e18);
      some.z[i] = exists ? s.weight[base + index(first + i)] : T(0);
    }
    return some;
  }
  /// Which term the lane's i-th is.
  __device__ int index(int i) const { return this->lane() + Members::kLanes * i; }
  /// Calls body(i, some) for the terms i ... i + kAtOnce - 1.
  template <typename Body>
  __device__ void for_each(const Body& body) const {
#pragma unroll
    for (int i = 0; i < kOwn; i += kAtOnce)
      if (Members::kLanes * i < size) {
        if constexpr (kHeld)
          body(i, held[i / kAtOnce]);
        else
          body(i, loaded(i));
      }
  }
};

template <typename T, int N>
__device__ SecularValue<T> secular_value(const MergeTerms<T, N>& terms, int, int split, const T*,
                                         const T*, T origin, T offset) {
  using Terms = MergeTerms<T, N>;
  constexpr int kAtOnce = Terms::kAtOnce;
  SecularValue<T> f{0, 0, 0, 0};
  terms.for_each([&](int first, const typename Terms::Some& some) {
    T ratio[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) ratio[i] = rough_inverse((some.pole[i] - origin) - offset);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      ratio[i] *= some.z[i];
      const T value = some.z[i] * ratio[i], slope = ratio[i] * ratio[i];
      const bool left = terms.index(first + i) <= split;
      f.left += left ? value : T(0);
      f.left_slope += left ? slope : T(0);
      f.right += left ? T(0) : value;
      f.right_slope += left ? T(0) : slope;
    }
  });
  return {terms.sum(f.left), terms.sum(f.left_slope), terms.sum(f.right), terms.sum(f.right_slope)};
}

template <typename T, int N>
__device__ T secular_squares(const MergeTerms<T, N>& terms, int, const T*) {
  T squares = 0;
  terms.for_each([&](int, const typename MergeTerms<T, N>::Some& some) {
#pragma unroll
    for (int i = 0; i < MergeTerms<T, N>::kAtOnce; ++i) squares += some.z[i] * some.z[i];
  });
  return terms.sum(squares);
}

/// `at` is the pole nearest to each root.
template <typename T, int N>
__device__ T secular_weight(const MergeTerms<T, N>& terms, int count, int j, const T* pole,
                            const T* z, const T* at, const T* offset) {
  using Terms = MergeTerms<T, N>;
  constexpr int kAtOnce = Terms::kAtOnce;
  T product = 1;
  const T own = pole[j];
  terms.for_each([&](int first, const typename Terms::Some& some) {
    T gap[kAtOnce], inverse[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int k = max(0, min(terms.index(first + i), count - 1));
      gap[i] = (at[k] - own) + offset[k];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) inverse[i] = short_inverse(some.pole[i] - own);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int k = terms.index(first + i);
      const T factor = k == j ? gap[i] : gap[i] * inverse[i];
      product *= k < count ? factor : T(1);
    }
  });
  return copysign(sqrt(fabs(terms.product(product))), z[j]);
}

}  // namespace keel::cuda
