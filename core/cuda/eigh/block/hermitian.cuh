#pragma once

// One Hermitian matrix, n <= 128 (float64: 64), solved by one block (or a warp) as decompose.cuh solves symmetric
// ones. A diagonal matrix of phases makes the tridiagonal matrix real, so divide and conquer is the
// same. The two steps around it are here. Real and imaginary parts are in different matrices.

#include <complex>

#include "cuda/eigh/block/decompose.cuh"
#include "formulas/phase.h"

namespace keel::cuda {

/// The real parts of M and of the reflectors are in Storage::reflectors, those of p in Storage::p.
template <typename T, int N>
struct HermitianStorage : Storage<T, N> {
  using Storage<T, N>::kRow;
  /// Whether imaginary parts are where divide and conquer has its update, and outside meanwhile.
  static constexpr bool kStashes = N > 64;
  static constexpr int kStash = kStashes ? N * kRow : 0;  ///< numbers in global memory
  alignas(16) T own_imaginary[kStashes ? 1 : N * kRow];
  alignas(16) T imaginary_p[kRow];
  alignas(16) T phase[2][N];  ///< of each row of the tridiagonal matrix: real and imaginary parts

  __device__ T* imaginary() {
    if constexpr (kStashes)
      return this->update;
    else
      return own_imaginary;
  }
};

/// Leaves M in s, both triangles, and in s.vectors the size of each entry, which says where M is zero.
template <typename T, int N>
__device__ UnitScale<T> load_hermitian(const Team<T, N>& team, int n, const std::complex<T>* source,
                                       std::int64_t row_stride, HermitianStorage<T, N>& s) {
  constexpr int kOwn = Team<T, N>::kOwn, kRow = Team<T, N>::kRow;
  const int j = team.column();
  Pack<T, 2> own[kOwn];
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int c = team.element(k);
    own[k] = {};
    if (c <= j && j < n)
      own[k] = pack_at<2>(reinterpret_cast<const T*>(source + j * row_stride + c));
    if (c == j) own[k].at[1] = 0;
  }
  T size = 0;
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int c = team.element(k), at = j * kRow + c, mirrored = c * kRow + j;
    const T re = own[k].at[0], im = own[k].at[1],
            larger = fmax(UnitScale<T>::magnitude(re), UnitScale<T>::magnitude(im));
    if (c <= j && j < n) {
      s.vectors[at] = s.vectors[mirrored] = larger;
      s.reflectors[at] = s.reflectors[mirrored] = re;
      s.imaginary()[mirrored] = -im;
      s.imaginary()[at] = im;
    }
    size = fmax(size, larger);
  }
  return UnitScale<T>(largest_of_all(team, size, s.exchange));
}

/// M -> diagonal, coupling, reflectors, their scales and the phases, with rows and columns in
/// s.order and scaled, `several` parts each by its own scale. Four lanes share a row. Reflection k is
/// I - scale_k x_k x_k^H.
template <typename T, int N>
__device__ void tridiagonalise_hermitian(const Team<T, N>& team, int n, const UnitScale<T>& scale,
                                         bool several, HermitianStorage<T, N>& s) {
  using Members = Team<T, N>;
  constexpr int kOwn = Members::kOwn, kRow = Members::kRow, kPiece = Members::kPiece,
                kRowsOfWarp = 32 / Members::kLanes;
  constexpr bool kHeld = kOwn * sizeof(T) <= 64;  // the reflector, in registers
  const int r = team.column(), from = s.order[min(r, n - 1)];
  UnitScale<T> unit = scale;
  if (several) unit.set(int(s.part_exponent[from]));
  T re[kOwn], im[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int c = team.element(i), at = from * kRow + s.order[min(c, n - 1)];
    const bool exists = scale.finite && r < n && c < n;
    re[i] = exists ? unit.down(s.reflectors[at]) : T(0);
    im[i] = exists ? unit.down(s.imaginary()[at]) : T(0);
  }
  if (team.lane() == 0) {
    s.phase[0][r] = 1;
    s.phase[1][r] = 0;
  }
  team.sync();  // now reflectors may overwrite M
  for (int k = 0; k + 1 < n; ++k) {
    T *const reflector = s.reflectors + k * kRow, *const imaginary = s.imaginary() + k * kRow;
    // The whole warp of row k takes part, because the sums need its lanes.
    if (r / kRowsOfWarp == k / kRowsOfWarp) {
      T above_re = 0, above_im = 0, tails[2] = {};
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {  // column k is the conjugate of row k
        const int c = team.element(i);
        if (c == k + 1) above_re = re[i], above_im = -im[i];
        const T x = c > k + 1 ? re[i] : T(0), y = c > k + 1 ? im[i] : T(0);
        tails[i % 2] = fma(x, x, fma(y, y, tails[i % 2]));
      }
      // All but one are zero.
      const SizeAndPhase<T> above(team.sum(above_re), team.sum(above_im));
      const Householder<T> made(above.size, team.sum(tails[0] + tails[1]));
      const T head = above.size - made.beta;
      if (r == k) {
#pragma unroll
        for (int i = 0; i < kOwn; i += kPiece) {
          Pack<T, kPiece> x, y;
#pragma unroll
          for (int e = 0; e < kPiece; ++e) {
            const int c = team.element(i + e);
            x.at[e] = c > k + 1 ? re[i + e] : c == k + 1 ? head * above.re : T(0);
            y.at[e] = c > k + 1 ? -im[i + e] : c == k + 1 ? head * above.im : T(0);
          }
          pack_at<kPiece>(reflector + team.element(i)) = x;
          pack_at<kPiece>(imaginary + team.element(i)) = y;
        }
        if (team.lane() == 0) {
          s.coupling[k] = made.beta;
          s.reflector_scale[k] = made.scale;
          const T last_re = s.phase[0][k], last_im = s.phase[1][k],
                  x = last_re * above.re - last_im * above.im,
                  y = last_re * above.im + last_im * above.re;
          if (made.beta != 0) {
            // A product of many would drift away from size 1.
            const T mended = T(1.5) - T(0.5) * (x * x + y * y);
            s.phase[0][k + 1] = mended * x;
            s.phase[1][k + 1] = mended * y;
          }
        }
      }
    }
    if (k + 2 == n) break;
    team.sync();
    const bool has_rows = (r | (kRowsOfWarp - 1)) >= k;  // the same for the whole warp
    const T factor = s.reflector_scale[k];
    T p_re = 0, p_im = 0, held_x[kOwn], held_y[kOwn];
    // Numbers i, i + 1, ... of the reflector.
    const auto part = [&](const T(&held)[kOwn], const T* row, int i) {
      if constexpr (kHeld) {
        Pack<T, kPiece> some;
#pragma unroll
        for (int e = 0; e < kPiece; ++e) some.at[e] = held[i + e];
        return some;
      } else {
        return pack_at<kPiece>(row + team.element(i));
      }
    };
    if (has_rows) {
      if constexpr (kHeld) {
        team.load(reflector, held_x);
        team.load(imaginary, held_y);
      }
      T sum_re[2] = {}, sum_im[2] = {};
#pragma unroll
      for (int i = 0; i < kOwn; i += kPiece) {
        const auto x = part(held_x, reflector, i), y = part(held_y, imaginary, i);
#pragma unroll
        for (int e = 0; e < kPiece; ++e) {
          const T a = re[i + e], b = im[i + e];
          sum_re[e % 2] = fma(a, x.at[e], fma(-b, y.at[e], sum_re[e % 2]));
          sum_im[e % 2] = fma(a, y.at[e], fma(b, x.at[e], sum_im[e % 2]));
        }
      }
      p_re = (r > k ? factor : T(0)) * team.sum(sum_re[0] + sum_re[1]);
      p_im = (r > k ? factor : T(0)) * team.sum(sum_im[0] + sum_im[1]);
      if (team.lane() == 0) {
        s.p[r] = p_re;
        s.imaginary_p[r] = p_im;
      }
    }
    team.sync();
    if (has_rows) {
      // M - x p^H - (p - along x) x^H, with along = scale (p . x), which is real. p is read twice,
      // because registers are scarce.
      T sums[2] = {};
#pragma unroll
      for (int i = 0; i < kOwn; i += kPiece) {
        const auto x = part(held_x, reflector, i), y = part(held_y, imaginary, i),
                   u = pack_at<kPiece>(s.p + team.element(i)),
                   v = pack_at<kPiece>(s.imaginary_p + team.element(i));
#pragma unroll
        for (int e = 0; e < kPiece; ++e)
          sums[e % 2] = fma(u.at[e], x.at[e], fma(v.at[e], y.at[e], sums[e % 2]));
      }
      const T along = factor * team.sum(sums[0] + sums[1]), x_r = reflector[r], y_r = imaginary[r];
      p_re = fma(-along, x_r, p_re);
      p_im = fma(-along, y_r, p_im);
#pragma unroll
      for (int i = 0; i < kOwn; i += kPiece) {
        const auto x = part(held_x, reflector, i), y = part(held_y, imaginary, i),
                   u = pack_at<kPiece>(s.p + team.element(i)),
                   v = pack_at<kPiece>(s.imaginary_p + team.element(i));
#pragma unroll
        for (int e = 0; e < kPiece; ++e) {
          T &a = re[i + e], &b = im[i + e];
          a = fma(-x_r, u.at[e], fma(-y_r, v.at[e], a));
          b = fma(-y_r, u.at[e], fma(x_r, v.at[e], b));
          a = fma(-p_re, x.at[e], fma(-p_im, y.at[e], a));
          b = fma(-p_im, x.at[e], fma(p_re, y.at[e], b));
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (team.element(i) == r) s.diagonal[r] = re[i];
  team.sync();
}

/// Vectors of the tridiagonal matrix -> those of M: phases, then the reflections, the last one first.
/// Four threads a quarter of a warp apart have a vector, as in BackTransform.
template <typename T, int N>
struct HermitianBack {
  using Members = Team<T, N>;
  using Real = BackTransform<T, N>;
  static constexpr int kOwn = Members::kOwn, kRow = Members::kRow, kPiece = Members::kPiece;

  HermitianStorage<T, N>& s;
  const Real real;  ///< knows which thread has what
  T re[kOwn], im[kOwn];

  __device__ HermitianBack(const Members& team, int n, HermitianStorage<T, N>& storage)
      : s(storage), real(team, n, storage) {}

  /// Applies reflections 16 SEGMENT + 15 down to 16 SEGMENT, whose reflectors are zero up to entry
  /// 16 SEGMENT.
  template <int SEGMENT>
  __device__ void apply() {
    constexpr int kZeros = SEGMENT * 16 / Members::kLanes;
#pragma unroll 1
    for (int k = min(16 * SEGMENT + 15, real.n - 3); k >= 16 * SEGMENT; --k) {
      // Read twice where registers are scarce.
      const T *const reflector = s.reflectors + k * kRow, *const imaginary =
                                                              s.imaginary() + k * kRow;
      T sum_re[2] = {}, sum_im[2] = {};
#pragma unroll
      for (int i = kZeros; i < kOwn; i += kPiece) {
        const auto x = pack_at<kPiece>(reflector + real.piece(i)),
                   y = pack_at<kPiece>(imaginary + real.piece(i));
#pragma unroll
        for (int e = 0; e < kPiece; ++e) {
          const T a = re[i + e], b = im[i + e];
          sum_re[e % 2] = fma(x.at[e], a, fma(y.at[e], b, sum_re[e % 2]));
          sum_im[e % 2] = fma(x.at[e], b, fma(-y.at[e], a, sum_im[e % 2]));
        }
      }
      const T scale = s.reflector_scale[k], f = scale * Real::sum(sum_re[0] + sum_re[1]),
              g = scale * Real::sum(sum_im[0] + sum_im[1]);
#pragma unroll
      for (int i = kZeros; i < kOwn; i += kPiece) {
        const auto x = pack_at<kPiece>(reflector + real.piece(i)),
                   y = pack_at<kPiece>(imaginary + real.piece(i));
#pragma unroll
        for (int e = 0; e < kPiece; ++e) {
          re[i + e] = fma(-f, x.at[e], fma(g, y.at[e], re[i + e]));
          im[i + e] = fma(-f, y.at[e], fma(-g, x.at[e], im[i + e]));
        }
      }
    }
    if constexpr (SEGMENT > 0) apply<SEGMENT - 1>();
  }
  __device__ void store(T* row, const T (&own)[kOwn]) const {
#pragma unroll
    for (int i = 0; i < kOwn; i += kPiece) {
      Pack<T, kPiece> some;
#pragma unroll
      for (int e = 0; e < kPiece; ++e) some.at[e] = own[i + e];
      pack_at<kPiece>(row + real.piece(i)) = some;
    }
  }

  __device__ void run() {
    T vector[kOwn];
    real.template load<0>(real.own, vector);
    real.template load<0>(s.phase[0], re);
    real.template load<0>(s.phase[1], im);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      re[i] *= vector[i];
      im[i] *= vector[i];
    }
    apply<(N - 1) / 16>();
    if constexpr (HermitianStorage<T, N>::kStashes) real.team.sync();  // reflectors are in s.update
    store(real.own, re);
    store(s.update + (real.own - s.vectors), im);
    real.team.sync();
  }
};

// --- The end of `decompose` in functions. There they are not: the compiler would then arrange its
// instructions differently.

/// The row of each number of a vector that this thread has; negative if there is none.
template <typename T, int N>
__device__ void rows_of(const Team<T, N>& team, int n, const Storage<T, N>& s,
                        int (&row)[Team<T, N>::kOwn]) {
  constexpr int kPiece = Team<T, N>::kPiece;
#pragma unroll
  for (int k = 0; k < Team<T, N>::kOwn; k += kPiece) {
    const auto rows = pack_at<kPiece>(s.order + team.element(k));
#pragma unroll
    for (int i = 0; i < kPiece; ++i) row[k + i] = team.element(k + i) < n ? rows.at[i] : -1;
  }
}

/// Of a matrix in parts: scales value team.column() back. A vector is zero outside its part, in which
/// `row` is.
template <typename T, int N>
__device__ void scale_back_parts(const Team<T, N>& team, int n, int row, UnitScale<T>& scale,
                                 Storage<T, N>& s) {
  const int j = team.column();
  if constexpr (N > 4)
    if (s.has_parts) {
      if (team.lane() == 0 && j < n) s.value[j] = ldexp(s.value[j], int(s.part_exponent[row]));
      scale.exponent = 0;
      team.sync();
    }
}

/// The place of value team.column() in descending order.
template <typename T, int N>
__device__ int place_of(const Team<T, N>& team, int n, T value, const Storage<T, N>& s) {
  int place = 0;
  team.for_each_of(s.value, N, n, team.column(), [&](T other, bool earlier) {
    place += int(other > value) | (int(other == value) & int(earlier));  // no branches
  });
  return team.sum(place);
}

/// Leaves the eigenvalues in s.sorted_value, descending, and the real and imaginary parts of the
/// eigenvectors in the columns of s.vectors and s.update. If an entry is not finite, returns false
/// and everything is NaN. `stash`: HermitianStorage::kStash numbers in global memory.
template <typename T, int N>
__device__ bool decompose_hermitian(const Team<T, N>& team, int n, const std::complex<T>* source,
                                    std::int64_t row_stride, T* stash, HermitianStorage<T, N>& s) {
  using Members = Team<T, N>;
  constexpr int kOwn = Members::kOwn, kRow = Members::kRow;
  UnitScale<T> scale = load_hermitian(team, n, source, row_stride, s);
  team.sync();
  const bool several = order_rows(team, n, s);
  tridiagonalise_hermitian(team, n, scale, several, s);
  // Each thread gets back what it has put there.
  constexpr int kPack = 16 / int(sizeof(T));
  for (int i = team.thread() * kPack; i < s.kStash; i += Members::kSize * kPack)
    pack_at<kPack>(stash + i) = pack_at<kPack>(s.imaginary() + i);
  divide_and_conquer(team, n, s);
  for (int i = team.thread() * kPack; i < s.kStash; i += Members::kSize * kPack)
    pack_at<kPack>(s.imaginary() + i) = pack_at<kPack>(stash + i);
  if constexpr (s.kStashes) team.sync();
  HermitianBack<T, N>(team, n, s).run();

  const int j = team.column();
  T re[kOwn], im[kOwn], square[kOwn];
  team.load(s.vectors + j * kRow, re);
  team.load(s.update + j * kRow, im);
  int row[kOwn];
  rows_of(team, n, s, row);
#pragma unroll
  for (int k = 0; k < kOwn; ++k) square[k] = fma(re[k], re[k], im[k] * im[k]);
  const LargestEntry<T> largest(square, row, Members::kLanes);
  T peak_re = 0, peak_im = 0;
#pragma unroll
  for (int k = 0; k < kOwn; ++k)
    if (row[k] == largest.row) peak_re = re[k], peak_im = im[k];
  const T peak = sqrt(largest.magnitude), c = team.sum(peak_re) / peak,
          d = -team.sum(peak_im) / peak;
  scale_back_parts(team, n, largest.row, scale, s);
  const T value = j < n ? s.value[j] : T(0);
  const int place = place_of(team, n, value, s);
  team.sync();  // all vectors are in registers
  if (j < n) {
    if (team.lane() == 0) s.sorted_value[place] = scale.finite ? scale.up(value) : T(NAN);
#pragma unroll
    for (int k = 0; k < kOwn; ++k)
      if (row[k] >= 0) {
        const bool is_peak = row[k] == largest.row;
        const T x = is_peak ? peak : fma(re[k], c, -im[k] * d),
                y = is_peak ? T(0) : fma(re[k], d, im[k] * c);
        s.vectors[row[k] * kRow + place] = scale.finite ? x + T(0) : T(NAN);
        s.update[row[k] * kRow + place] = scale.finite ? y + T(0) : T(NAN);
      }
  }
  team.sync();
  return scale.finite;
}

/// Blocks per multiprocessor, as far as registers decide.
template <typename T, int N>
inline constexpr int kHermitianBlocks = N < 64                      ? 0
                                        : N == 64 && sizeof(T) == 4 ? 2
                                                                    : 1;

template <typename T, int N>
__global__ void __launch_bounds__(Team<T, N>::kSize* kTeams<T, N>, kHermitianBlocks<T, N>)
    eigh_hermitian_kernel(Matrices<const std::complex<T>> matrices, T* values,
                          Matrices<std::complex<T>> vectors, EighOrder order, EighStatus* status,
                          T* stash) {
  extern __shared__ __align__(16) unsigned char memory[];
  const int n = int(matrices.n), slot = threadIdx.x / Team<T, N>::kSize;
  const std::int64_t index = std::int64_t(blockIdx.x) * kTeams<T, N> + slot;
  const Team<T, N> team{int(threadIdx.x) % Team<T, N>::kSize};
  auto& s = reinterpret_cast<HermitianStorage<T, N>*>(memory)[slot];
  const bool exists = index < matrices.batch;  // as in eigh_kernel
  const bool finite =
      decompose_hermitian(team, n, matrices[exists ? index : matrices.batch - 1],
                          matrices.row_stride, stash + std::int64_t(blockIdx.x) * s.kStash, s);
  if (!exists) return;
  for (int at = team.thread(); at < n; at += Team<T, N>::kSize)
    values[index * n + at] = s.sorted_value[place_in(order, n, at)];
  std::complex<T>* const to = vectors[index];
  const int c = team.thread() % N;
  if (c < n)
    for (int r = team.thread() / N; r < n; r += Team<T, N>::kSize / N) {
      const int from = r * Team<T, N>::kRow + place_in(order, n, c);
      pack_at<2>(reinterpret_cast<T*>(to + r * vectors.row_stride + c)) = {s.vectors[from],
                                                                           s.update[from]};
    }
  if (team.thread() == 0 && status != nullptr)
    status[index] = finite ? EighStatus::converged : EighStatus::not_finite;
}

}  // namespace keel::cuda
