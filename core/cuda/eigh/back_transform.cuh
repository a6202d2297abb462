#pragma once

// Eigenvectors of the tridiagonal matrix T = Q^T M Q -> those of M: the vectors times reflections,
// the last one first, two at a time. Both products with a vector are computed at once. What the
// first reflection changes in the second product follows from the product of the two reflectors.

#include "cuda/eigh/team.cuh"

namespace keel::cuda {

/// Four threads per vector, as in Team, but a quarter of a warp apart: then neighbours read the same
/// part of a reflector, which takes half the time.
template <typename T, int N>
struct BackTransform {
  using Members = Team<T, N>;
  static constexpr int kOwn = Members::kOwn, kRow = Members::kRow, kPiece = Members::kPiece;
  /// Whether the next two reflectors are loaded while two are applied, if registers allow.
  static constexpr bool kAhead = kOwn * sizeof(T) <= 64;
  /// Reflectors 2 k and 2 k + 1.
  struct alignas(4 * sizeof(T)) Two {
    T scale[2], product;
  };
  static_assert(sizeof(Two) * (N / 2) <= sizeof(Storage<T, N>::update));

  const Members& team;
  Storage<T, N>& s;
  const int n, part;
  T* const own;  ///< the vector
  Two* const twos;
  T vector[kOwn], x[2][kOwn];
  Two two;

  __device__ BackTransform(const Members& members, int size, Storage<T, N>& storage)
      : team(members),
        s(storage),
        n(size),
        part(members.thread % 32 / 8),
        own(storage.vectors + (members.thread / 32 * 8 + members.thread % 8) * kRow),
        twos(reinterpret_cast<Two*>(storage.update)) {}

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
  template <int FIRST>
  __device__ void load_two(int k) {
    two = twos[k];
    load<FIRST>(s.reflectors + 2 * k * kRow, x[0]);
    load<FIRST>(s.reflectors + (2 * k + 1) * kRow, x[1]);
  }
  /// Over the four threads of a vector.
  __device__ static T sum(T value) {
    value += Members::near(value, 8);
    return value + Members::near(value, 16);
  }

  /// Fills twos. There are n - 2 reflectors; if that is odd, zeros are the last one.
  __device__ void prepare() const {
    const int k = team.column();
    T zeros[kOwn] = {}, reflector[kOwn], next[kOwn];
    if (k == n - 2) {
      team.store(s.reflectors + k * kRow, zeros);
      if (team.lane() == 0) s.reflector_scale[k] = 0;
    }
    team.sync();
    // Every thread takes part in the sums, also for the pairs that are not used.
    const int after = min(k + 1, N - 1);
    team.load(s.reflectors + k * kRow, reflector);
    team.load(s.reflectors + after * kRow, next);
    const T product = team.dot(reflector, next);
    if (k % 2 == 0 && team.lane() == 0)
      twos[k / 2] = {{s.reflector_scale[k], s.reflector_scale[after]}, product};
  }

  /// Applies reflectors 16 SEGMENT + 15 down to 16 SEGMENT, which are zero up to entry 16 SEGMENT.
  template <int SEGMENT>
  __device__ void apply() {
    constexpr int kZeros = SEGMENT * 16 / Members::kLanes, kFirst = 8 * SEGMENT;
    const int last = min(kFirst + 7, (n - 3) / 2);
    if (kAhead && last >= kFirst) load_two<kZeros>(last);
#pragma unroll 1
    for (int k = last; k >= kFirst; --k) {
      if (!kAhead) load_two<kZeros>(k);
      T now[2][kOwn], sums[2][2] = {};
#pragma unroll
      for (int i = kZeros; i < kOwn; ++i) now[0][i] = x[0][i], now[1][i] = x[1][i];
      const Two of = two;
      if (kAhead) load_two<kZeros>(max(k - 1, kFirst));
#pragma unroll
      for (int i = kZeros; i < kOwn; ++i)
#pragma unroll
        for (int r = 0; r < 2; ++r) sums[r][i % 2] = fma(now[r][i], vector[i], sums[r][i % 2]);
      const T first = sum(sums[0][0] + sums[0][1]), second = sum(sums[1][0] + sums[1][1]);
      const T b = of.scale[1] * second, a = of.scale[0] * fma(-b, of.product, first);
#pragma unroll
      for (int i = kZeros; i < kOwn; ++i)
        vector[i] = fma(-a, now[0][i], fma(-b, now[1][i], vector[i]));
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
