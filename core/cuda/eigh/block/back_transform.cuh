#pragma once

// Eigenvectors of the tridiagonal matrix T = Q^T M Q -> those of M: reflections are applied to the
// vectors, the last one first. Several are applied at a time. Their products with a vector are
// computed independently. How each reflection changes the product of the next one follows from the
// products of the reflectors with each other.

#include "cuda/eigh/block/team.cuh"

namespace keel::cuda {

/// Four threads per vector, as in Team, but a quarter of a warp apart: then neighbours read the same
/// part of a reflector, which takes half the time.
template <typename T, int N>
struct BackTransform {
  using Members = Team<T, N>;
  static constexpr int kOwn = Members::kOwn, kRow = Members::kRow, kPiece = Members::kPiece;
  /// Reflectors at a time, as many as there are registers for.
  static constexpr int kLot = kOwn * sizeof(T) <= 64 ? 4 : 2;
  /// The scales of a lot's reflectors, and their products with each other.
  struct alignas(16) Lot {
    T scale[kLot], product[kLot * (kLot - 1) / 2];
    __device__ static constexpr int pair(int i, int j) { return j * (j - 1) / 2 + i; }  ///< i < j
  };
  static_assert(sizeof(Lot) * (N / kLot) <= sizeof(Storage<T, N>::update));

  const Members& team;
  Storage<T, N>& s;
  const int n, part;
  T* const own;  ///< the vector
  Lot* const lots;
  T vector[kOwn];

  __device__ BackTransform(const Members& members, int size, Storage<T, N>& storage)
      : team(members),
        s(storage),
        n(size),
        part(members.thread() % 32 / 8),
        own(storage.vectors + (members.thread() / 32 * 8 + members.thread() % 8) * kRow),
        lots(reinterpret_cast<Lot*>(storage.update)) {}

  /// Where this thread's numbers i, i + 1, ... of a vector are; i is a multiple of kPiece.
  __device__ int piece(int i) const { return (i / kPiece * Members::kLanes + part) * kPiece; }
  template <int FIRST>
  __device__ void load(const T* row, T (&to)[kOwn]) const {
#pragma unroll
    for (int i = FIRST; i < kOwn; i += kPiece) {
      const auto some = pack_at<kPiece>(row + piece(i));
#pragma unroll
      for (int e = 0; e < kPiece; ++e) to[i + e] = some.at[e];
    }
  }
  /// Over the four threads of a vector.
  __device__ static T sum(T value) {
    value += Members::near(value, 8);
    return value + Members::near(value, 16);
  }

  /// Fills the lots. There are n - 2 reflectors; zeros fill up the last lot.
  __device__ void prepare() const {
    const int k = team.column(), first = k / kLot * kLot;
    if (k >= n - 2 && first < n - 2) {
      const T zeros[kOwn] = {};
      team.store(s.reflectors + k * kRow, zeros);
      if (team.lane() == 0) s.reflector_scale[k] = 0;
    }
    team.sync();
    Lot& lot = lots[k / kLot];
    T reflector[kOwn];
    team.load(s.reflectors + k * kRow, reflector);
#pragma unroll
    for (int before = 0; before + 1 < kLot; ++before) {
      T other[kOwn];
      team.load(s.reflectors + (first + before) * kRow, other);
      const T product = team.dot(reflector, other);
      if (team.lane() == 0 && before < k - first)
        lot.product[Lot::pair(before, k - first)] = product;
    }
    if (team.lane() == 0) lot.scale[k - first] = s.reflector_scale[k];
  }

  /// Applies reflectors 16 SEGMENT + 15 down to 16 SEGMENT, which are zero up to entry 16 SEGMENT.
  template <int SEGMENT>
  __device__ void apply() {
    constexpr int kZeros = SEGMENT * 16 / Members::kLanes, kFirst = 16 / kLot * SEGMENT;
    const int last = min(kFirst + 16 / kLot - 1, (n - 3) / kLot);
#pragma unroll 1
    for (int l = last; l >= kFirst; --l) {
      const Lot lot = lots[l];
      T x[kLot][kOwn], factor[kLot];
#pragma unroll
      for (int k = 0; k < kLot; ++k) load<kZeros>(s.reflectors + (l * kLot + k) * kRow, x[k]);
#pragma unroll
      for (int k = 0; k < kLot; ++k) {
        T sums[2] = {};
#pragma unroll
        for (int i = kZeros; i < kOwn; ++i) sums[i % 2] = fma(x[k][i], vector[i], sums[i % 2]);
        factor[k] = sums[0] + sums[1];
      }
#pragma unroll
      for (int k = 0; k < kLot; ++k) factor[k] = sum(factor[k]);
#pragma unroll
      for (int k = kLot - 1; k >= 0; --k) {
#pragma unroll
        for (int later = kLot - 1; later > k; --later)
          factor[k] = fma(-factor[later], lot.product[Lot::pair(k, later)], factor[k]);
        factor[k] *= lot.scale[k];
      }
#pragma unroll
      for (int k = kLot - 1; k >= 0; --k)
#pragma unroll
        for (int i = kZeros; i < kOwn; ++i) vector[i] = fma(-factor[k], x[k][i], vector[i]);
    }
    if constexpr (SEGMENT > 0) apply<SEGMENT - 1>();
  }

  __device__ void run() {
    prepare();
    load<0>(own, vector);
    team.sync();
    apply<(N - 1) / 16>();
#pragma unroll
    for (int i = 0; i < kOwn; i += kPiece) {
      Pack<T, kPiece> some;
#pragma unroll
      for (int e = 0; e < kPiece; ++e) some.at[e] = vector[i + e];
      pack_at<kPiece>(own + piece(i)) = some;
    }
    team.sync();
  }
};

/// s.vectors = Q s.vectors, for n > 2. Overwrites s.update.
template <typename T, int N>
__device__ void apply_reflectors(const Team<T, N>& team, int n, Storage<T, N>& s) {
  BackTransform<T, N>(team, n, s).run();
}

}  // namespace keel::cuda
