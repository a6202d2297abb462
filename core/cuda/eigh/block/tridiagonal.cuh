#pragma once

// Symmetric matrix -> tridiagonal T = Q^T M Q by Householder reflections. One matrix is bound by the
// time from one column to the next. So a column has one barrier, and the reflector's length is
// computed beside the product that needs it:
//   - All warps compute the next column of M themselves.
//   - All of a reflector x but its first entry, the head, is such a column. The warps that hold M
//     multiply it by that while one more warp computes length and head. The head's share of the
//     product is added after the barrier.
//   - A reflection is applied to M during the product of the next one.
//   - Rows that are done are left out, four of each lane at a time. Neighbouring rows belong to
//     different groups of lanes, so that all have equally many left.

#include "cuda/eigh/block/team.cuh"
#include "formulas/householder.h"
#include "formulas/scale.h"

namespace keel::cuda {

/// A lane holds some columns of a few rows, and those columns' entries of all vectors.
template <typename T, int N>
struct Tridiagonaliser {
  static constexpr int kWidth = N < 32 ? N : 32;        ///< lanes side by side
  static constexpr int kColumns = N / kWidth;           ///< per lane, adjacent
  static constexpr int kWarps = N > 16 ? N / 16 : 1;    ///< that hold M; one more makes reflectors
  static constexpr int kGroups = kWarps * 32 / kWidth;  ///< of lanes, with different rows
  static constexpr int kRows = N / kGroups;             ///< per lane
  static constexpr int kThreads = 32 * (kWarps + 1);
  static_assert(kThreads <= Team<T, N>::kSize);
  static constexpr int kPack = 16 / int(sizeof(T));  ///< numbers that are read at once
  using Columns = Pack<T, kColumns>;

  /// What crosses a barrier is there twice: some warps write the next while others read the last.
  struct Exchange {
    alignas(16) T product[2][kGroups][N], column[2][N];
    T head[2], scale[2];  ///< of the reflector
    /// Each warp's own: w and the reflector without its head.
    alignas(16) T w[kWarps][N], x[2][kWarps][N];
  };
  static_assert(sizeof(Exchange) <= sizeof(Storage<T, N>::update));

  Storage<T, N>& s;
  Exchange& exchange;
  const int n, warp, group, left;  ///< left: the first column
  T entry[kRows][kColumns];
  Columns v = {};  ///< the last reflector without its head

  __device__ Tridiagonaliser(int size, int thread, Storage<T, N>& storage)
      : s(storage),
        exchange(*reinterpret_cast<Exchange*>(storage.update)),
        n(size),
        warp(thread / 32),
        group(thread / kWidth),
        left(thread % kWidth * kColumns) {}

  /// Number i of some that are in registers. By hand, since the compiler would index an array in
  /// memory.
  template <int COUNT, int FIRST = 0, typename Number>
  __device__ static T chosen(int i, const Number& number) {
    if constexpr (COUNT == 1) {
      return number(FIRST);
    } else {
      const T low = chosen<COUNT / 2, FIRST>(i, number),
              high = chosen<COUNT / 2, FIRST + COUNT / 2>(i, number);
      return i & COUNT / 2 ? high : low;
    }
  }
  /// Entry i of a vector.
  __device__ static T at(const Columns& x, int i) {
    const T own = chosen<kColumns>(i, [&](int j) { return x.at[j]; });
    return __shfl_sync(0xffffffffu, own, i / kColumns, kWidth);
  }
  /// Where entry i is in a warp's own vectors: those of a group's rows follow each other.
  __device__ static int by_group(int i) { return i % kGroups * kRows + i / kGroups; }
  /// Writes a vector to a warp's own memory.
  __device__ void keep(T* own, const Columns& x) const {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) own[by_group(left + j)] = x.at[j];
  }
  /// Sends row r and this lane's share of the product to all warps.
  template <int PARITY>
  __device__ void send(int r, const Columns& product) {
    pack_at<kColumns>(exchange.product[PARITY][group] + left) = product;
    if (r % kGroups != group) return;
    Columns row;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      row.at[j] = chosen<kRows>(r / kGroups, [&](int i) { return entry[i][j]; });
    pack_at<kColumns>(exchange.column[PARITY] + left) = row;
  }

  __device__ void load(const UnitScale<T>& unit) {
    if (warp == kWarps) {
      exchange.head[0] = exchange.scale[0] = 0;
      return;
    }
    int from[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) from[j] = s.order[min(left + j, n - 1)];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = i * kGroups + group;
      const T* const row = s.vectors + s.order[min(r, n - 1)] * Storage<T, N>::kRow;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const bool exists = unit.finite && r < n && left + j < n;
        entry[i][j] = exists ? unit.down(row[from[j]]) : T(0);
      }
    }
    keep(exchange.x[1][warp], Columns{});
    send<0>(0, Columns{});
  }

  /// Applies the last reflection, M - v w^T - w v^T, and multiplies by the new reflector x. In all
  /// groups, the FIRST rows are done.
  template <int PARITY, int FIRST = 0>
  __device__ void multiply(int k, const Columns& w, const Columns& x) {
    if constexpr (FIRST + 4 < kRows)
      if ((k + 1) / kGroups >= FIRST + 4) return multiply<PARITY, FIRST + 4>(k, w, x);
    constexpr int kPiece = kRows < kPack ? kRows : kPack;
    constexpr int kAtOnce = sizeof(T) == 4 && kColumns <= 2 ? kRows - FIRST : 4;  // rows
    constexpr int kSums = kColumns < 4 ? 4 / kColumns : 1;  // independent ones
    T *const all_w = exchange.w[warp], *const all_x = exchange.x[PARITY][warp];
    const T* const all_v = exchange.x[1 - PARITY][warp];
    const int first_row = group * kRows;
    keep(all_w, w);
    keep(all_x, x);
    __syncwarp();
    Columns sums[kSums] = {};
#pragma unroll
    for (int top = FIRST; top < kRows; top += kAtOnce) {
      Pack<T, kPiece> row_v[kAtOnce / kPiece], row_w[kAtOnce / kPiece], row_x[kAtOnce / kPiece];
#pragma unroll
      for (int i = 0; i < kAtOnce; i += kPiece) {
        row_v[i / kPiece] = pack_at<kPiece>(all_v + first_row + top + i);
        row_w[i / kPiece] = pack_at<kPiece>(all_w + first_row + top + i);
        row_x[i / kPiece] = pack_at<kPiece>(all_x + first_row + top + i);
      }
      __syncwarp();  // keeps the compiler from loading one after another, when each is needed
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          T& a = entry[top + i][j];
          a = fma(-row_v[i / kPiece].at[i % kPiece], w.at[j],
                  fma(-row_w[i / kPiece].at[i % kPiece], v.at[j], a));
          T& total = sums[i % kSums].at[j];
          total = fma(a, row_x[i / kPiece].at[i % kPiece], total);
        }
    }
#pragma unroll
    for (int i = 1; i < kSums; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums[0].at[j] += sums[i].at[j];
    send<1 - PARITY>(k + 1, sums[0]);
  }

  /// The rest of the reflector, from its tail x and the entry above that.
  template <int PARITY>
  __device__ void reflect(int k, const Columns& x, T alpha) {
    T tail = 0;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) tail = fma(x.at[j], x.at[j], tail);
    tail = warp_sum<kWidth>(tail);
    const Householder<T> made(alpha, tail);
    const T head = alpha - made.beta;
    exchange.head[1 - PARITY] = head;  // all lanes have the same
    exchange.scale[1 - PARITY] = made.scale;
    s.coupling[k] = made.beta;
    s.reflector_scale[k] = made.scale;
    if (k + 2 >= n) return;
    Columns whole = x;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      if (left + j == k + 1) whole.at[j] = head;
    pack_at<kColumns>(s.reflectors + k * Storage<T, N>::kRow + left) = whole;
  }

  /// Column k of T, and reflection k. PARITY is that of k. Returns whether there are more.
  template <int PARITY>
  __device__ bool work_column(int k) {
    const T head = exchange.head[PARITY], scale = exchange.scale[PARITY];
    Columns last = pack_at<kColumns>(exchange.column[PARITY] + left), p = {}, w, x;
#pragma unroll
    for (int other = 0; other < kGroups; ++other) {
      const Columns part = pack_at<kColumns>(exchange.product[PARITY][other] + left);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) p.at[j] += part.at[j];
    }
    T along = 0;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      // A factor that may be zero, not a value: the compiler would load behind a branch.
      p.at[j] = (left + j >= k ? scale : T(0)) * fma(head, last.at[j], p.at[j]);
      along = fma(p.at[j], v.at[j], along);
    }
    // The last reflection is M - v w^T - w v^T with w = p - half v. Apply it to column k, where the
    // head is.
    const T p_k = at(p, k), half = scale / 2 * fma(p_k, head, warp_sum<kWidth>(along)),
            w_k = fma(-half, head, p_k);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int c = left + j;
      if (warp == kWarps && c == k) s.diagonal[k] = fma(-2 * head, w_k, last.at[j]);
      w.at[j] = fma(-half, v.at[j], p.at[j]);
      last.at[j] = fma(-v.at[j], w_k, fma(-w.at[j], head, last.at[j]));
      x.at[j] = c > k + 1 ? last.at[j] : T(0);
    }
    if (k + 1 == n) return false;
    if (warp < kWarps)
      multiply<PARITY>(k, w, x);
    else
      reflect<PARITY>(k, x, at(last, k + 1));
    v = x;
    return true;
  }
};

/// The same for a team of one warp, where barriers cost nothing. Four lanes share a row.
template <typename T, int N>
__device__ void tridiagonalise_in_warp(const Team<T, N>& team, int n, const UnitScale<T>& unit,
                                       Storage<T, N>& s) {
  using Members = Team<T, N>;
  constexpr int kOwn = Members::kOwn, kRow = Members::kRow;
  const int r = team.column();
  T row[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int c = team.element(i);
    const bool exists = unit.finite && r < n && c < n;
    row[i] = exists ? unit.down(s.vectors[s.order[r] * kRow + s.order[c]]) : T(0);
  }
  for (int k = 0; k + 2 < n; ++k) {
    T* const reflector = s.reflectors + k * kRow;
    T x[kOwn], w[kOwn];
    // The whole warp of row k takes part, because the sums need its lanes.
    if (r / (32 / Members::kLanes) == k / (32 / Members::kLanes)) {
      T alpha = 0;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int c = team.element(i);
        if (c == k + 1) alpha = row[i];
        x[i] = c > k + 1 ? row[i] : T(0);
      }
      alpha = team.sum(alpha);  // all but one are zero
      const Householder<T> made(alpha, team.dot(x, x));
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        if (team.element(i) == k + 1) x[i] = alpha - made.beta;
      if (r == k) {
        team.store(reflector, x);
        if (team.lane() == 0) {
          s.coupling[k] = made.beta;
          s.reflector_scale[k] = made.scale;
        }
      }
    }
    team.sync();
    team.load(reflector, x);
    const T scale = s.reflector_scale[k], x_r = reflector[r];
    const T product = team.dot(row, x);
    const T p_r = r > k ? scale * product : T(0);
    if (team.lane() == 0) s.p[r] = p_r;
    team.sync();
    team.load(s.p, w);
    // A - x w^T - w x^T with w = p - (scale / 2) (p . x) x. Update first with what does not depend
    // on the sum, while that is computed.
    const T along = scale * team.dot(w, x) * x_r;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) row[i] -= x_r * w[i] + p_r * x[i];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) row[i] += along * x[i];
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int c = team.element(i);
    if (c == r) s.diagonal[r] = row[i];
    if (c == r + 1 && c == n - 1) s.coupling[r] = row[i];
  }
  team.sync();
}

/// s.vectors -> diagonal, coupling, reflectors and reflector_scale, with rows and columns in s.order
/// and scaled. Reflection k is I - scale_k x_k x_k^T. Overwrites s.update.
template <typename T, int N>
__device__ void tridiagonalise(const Team<T, N>& team, int n, const UnitScale<T>& scale,
                               Storage<T, N>& s) {
  if constexpr (!Team<T, N>::kBlock) {
    tridiagonalise_in_warp(team, n, scale, s);
  } else {
    using Worker = Tridiagonaliser<T, N>;
    // All threads must reach every barrier, also those with nothing to do: see stand_by().
    if (team.thread() < Worker::kThreads) {
      Worker worker(n, team.thread(), s);
      worker.load(scale);
      team.sync();
      for (int k = 0; worker.template work_column<0>(k); k += 2) {
        team.sync();
        if (!worker.template work_column<1>(k + 1)) break;
        team.sync();
      }
    } else {
      for (int k = 0; k < n; ++k) team.sync();
    }
    team.sync();
  }
}

}  // namespace keel::cuda
