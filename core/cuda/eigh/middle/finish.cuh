#pragma once

// The vectors of the last merge and their back-transformation: a block computes 64 of them from the
// vectors of the two halves. The columns of the update, the product and the result share one panel
// of shared memory, one after another.

#include "cuda/eigh/middle/parts.cuh"
#include "cuda/eigh/sign.cuh"
#include "formulas/order.h"

namespace keel::cuda {

template <typename T, int N>
struct FinishStorage {
  static constexpr int kHalf = N / 2, kPanel = 64, kPad = 16 / int(sizeof(T));
  static constexpr int kPanelRow = kPanel + kPad;  ///< panel[row][column]
  static constexpr int kColumn = N + kPad;         ///< panel[column][row], while column-major
  static constexpr int kPanelSize =
      N * kPanelRow > kPanel* kColumn ? N* kPanelRow : kPanel* kColumn;
  alignas(16) T vectors[N * kHalf];
  alignas(16) T panel[kPanelSize];
  MergeStorage<T, N> merge;
  T reflector_scale[N];
  T overlap[N];  ///< at odd k: the dot product of reflectors k and k - 1
  int order[N];
};

template <typename T, int N>
struct Finisher {
  using Storage = FinishStorage<T, N>;
  static constexpr int kHalf = N / 2, kPanel = Storage::kPanel, kThreads = 8 * kPanel;
  static constexpr int kWarps = kThreads / 32, kSquares = N / 32;
  static constexpr int kOwn = kPanel / kWarps;  ///< vectors per warp in the back-transformation
  Storage& s;
  const MiddleParts<T, N>& parts;
  int n, first, warp, lane;
  T vector[kOwn][kSquares];  ///< [i][j]: row lane + 32 j of vector first + kOwn warp + i

  __device__ __forceinline__ Finisher(Storage& storage, const MiddleParts<T, N>& source, int size,
                                      int first_vector)
      : s(storage),
        parts(source),
        n(size),
        first(first_vector),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32) {}

  __device__ __forceinline__ void load() {
    constexpr int kPiece = 16 / int(sizeof(T));
    using Numbers = Pack<T, kPiece>;
    const auto* const from = reinterpret_cast<const Numbers*>(parts.vectors);
    auto* const to = reinterpret_cast<Numbers*>(s.vectors);
#pragma unroll 8
    for (int at = threadIdx.x; at < N * kHalf / kPiece; at += kThreads) to[at] = from[at];
    auto* const zeros = reinterpret_cast<Numbers*>(s.panel);
    for (int at = threadIdx.x; at < N * Storage::kPanelRow / kPiece; at += kThreads)
      zeros[at] = Numbers{};
    for (int j = threadIdx.x; j < n; j += kThreads) {
      if (j < parts.alive) {
        s.merge.pole[j] = parts.merge.pole[j];
        s.merge.refined[j] = parts.merge.refined[j];
        s.merge.source[j] = parts.merge.source[j];
      }
      if (j < n - parts.alive) s.merge.dropped_source[j] = parts.merge.dropped_source[j];
      if (j < parts.rotations) s.merge.rotation[j] = parts.merge.rotation[j];
      s.reflector_scale[j] = j + 1 < n ? parts.reflector_scale[j] : T(0);
      s.order[j] = parts.order[j];
    }
    find_overlaps();
    __syncthreads();
  }

  __device__ __forceinline__ void make_update() {
    const Lanes<8> lanes;
    const int column = threadIdx.x / 8;
    const bool exists = first + column < n;
    Merge<T> merge{};
    merge.alive = parts.alive;
    merge.rotations = parts.rotations;
    const int j = exists ? parts.root_at[first + column] : 0;
    SecularRoot<T> root{0, 0};
    if (exists && j < merge.alive) root = {parts.merge.origin[j], parts.merge.offset[j]};
    fill_update_column(lanes, merge, j, exists, root, s.merge, s.panel + column,
                       Storage::kPanelRow);
    __syncthreads();
  }

  /// Half of the warps compute the rows of the first half, the others those of the second. A lane
  /// computes kHalf / 32 rows of kColumns columns.
  __device__ __forceinline__ void multiply() {
    constexpr int kLaneRows = kHalf / 32, kColumns = kPanel / (kWarps / 2);
    const int base = warp / (kWarps / 2) * kHalf, left = warp % (kWarps / 2) * kColumns;
    const int row = lane * kLaneRows;
    T sum[kColumns][kLaneRows] = {};
    const T* vectors = s.vectors + base * kHalf + row;
    const T* update = s.panel + base * Storage::kPanelRow + left;
#pragma unroll 4
    for (int k = min(kHalf, n - base); k > 0; --k) {
      const auto x = pack_at<kLaneRows>(vectors);
      const auto y = pack_at<kColumns>(update);
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
#pragma unroll
        for (int r = 0; r < kLaneRows; ++r) sum[c][r] += x.at[r] * y.at[c];
      vectors += kHalf;
      update += Storage::kPanelRow;
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      Pack<T, kLaneRows> piece;
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) piece.at[r] = sum[c][r];
      pack_at<kLaneRows>(s.panel + (left + c) * Storage::kColumn + base + row) = piece;
    }
    __syncthreads();
  }

  __device__ __forceinline__ void take_vectors() {
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
#pragma unroll
      for (int j = 0; j < kSquares; ++j)
        vector[i][j] = s.panel[(kOwn * warp + i) * Storage::kColumn + lane + 32 * j];
    __syncthreads();  // the panel can be reused
  }

  /// The dot products needed to apply two reflectors at a time. Row n - 2 of the reflectors is
  /// zero, so their number can be taken as even.
  __device__ __forceinline__ void find_overlaps() {
    constexpr int kAtOnce = 4;
    for (int base = 0; 2 * base < n; base += kAtOnce * kWarps) {
      T sums[kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int k = 2 * (base + kWarps * i + warp) + 1;
#pragma unroll
        for (int j = 0; j < kSquares; ++j)
          if (k <= n - 2 && j >= k / 32) {
            const T* const x = parts.reflectors + k * N + lane + 32 * j;
            sums[i] += x[0] * x[-N];
          }
      }
      const T sum = warp_sums(lane, sums);
      constexpr int kShare = 32 / kAtOnce;
      const int k = 2 * (base + kWarps * (lane / kShare) + warp) + 1;
      if (lane % kShare == 0 && k <= n - 2) s.overlap[k] = sum;
    }
  }

  /// Applies reflectors 32 SQUARE + 31 down to 32 SQUARE. Their first nonzero entry is in that
  /// square.
  template <int SQUARE>
  __device__ __forceinline__ void apply_reflections() {
    const int last = min(32 * SQUARE + 31, (n - 3) | 1);
    if (last < 32 * SQUARE) return;
    T next[2][kSquares];
    const auto fetch = [&](int k) {
#pragma unroll
      for (int j = SQUARE; j < kSquares; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) next[i][j] = parts.reflectors[(k - i) * N + lane + 32 * j];
    };
    fetch(last);
    for (int k = last; k > 32 * SQUARE; k -= 2) {
      T x[2][kSquares], products[2 * kOwn] = {};
#pragma unroll
      for (int j = SQUARE; j < kSquares; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) x[i][j] = next[i][j];
      if (k - 2 > 32 * SQUARE) fetch(k - 2);
#pragma unroll
      for (int j = SQUARE; j < kSquares; ++j)
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          products[i] += x[0][j] * vector[i][j];
          products[kOwn + i] += x[1][j] * vector[i][j];
        }
      const T product = warp_sums(lane, products);
      constexpr int kShare = 32 / (2 * kOwn);
      const T scale = s.reflector_scale[k], next_scale = s.reflector_scale[k - 1];
      const T twice = next_scale * s.overlap[k];  // the second acts on what the first left
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const T first = scale * __shfl_sync(0xffffffffu, product, i * kShare);
        const T second =
            next_scale * __shfl_sync(0xffffffffu, product, (kOwn + i) * kShare) - twice * first;
#pragma unroll
        for (int j = SQUARE; j < kSquares; ++j) vector[i][j] -= first * x[0][j] + second * x[1][j];
      }
    }
  }
  template <int SQUARE = kSquares - 1>
  __device__ __forceinline__ void apply_all() {
    apply_reflections<SQUARE>();
    if constexpr (SQUARE > 0) apply_all<SQUARE - 1>();
  }

  __device__ __forceinline__ void store(T* result, std::int64_t row_stride, EighOrder order) {
    const bool finite = parts.finite;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      LargestEntry<T> largest;
#pragma unroll
      for (int j = 0; j < kSquares; ++j)
        if (lane + 32 * j < n) largest.offer(vector[i][j], s.order[lane + 32 * j]);
      largest.share(32);
#pragma unroll
      for (int j = 0; j < kSquares; ++j)
        if (lane + 32 * j < n)
          s.panel[s.order[lane + 32 * j] * Storage::kPanelRow + kOwn * warp + i] =
              finite ? largest.with_sign(vector[i][j]) : T(NAN);
    }
    __syncthreads();
    const int count = min(kPanel, n - first);
    for (int at = threadIdx.x; at < n * kPanel; at += kThreads) {
      const int r = at / kPanel, c = at % kPanel;
      if (c < count)
        result[r * row_stride + place_in(order, n, first + c)] =
            s.panel[r * Storage::kPanelRow + c];
    }
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(Finisher<T, N>::kThreads, 1)
    finish_kernel(int panels, std::int64_t first, const bool* wanted, const MiddleParts<T, N>* all,
                  Matrices<T> vectors, EighOrder order) {
  using Panel = Finisher<T, N>;
  extern __shared__ __align__(16) unsigned char memory[];
  if (wanted != nullptr && !wanted[first + blockIdx.x / panels]) return;
  Panel panel(*reinterpret_cast<FinishStorage<T, N>*>(memory), all[blockIdx.x / panels],
              int(vectors.n), int(blockIdx.x % panels) * Panel::kPanel);
  panel.load();
  panel.make_update();
  panel.multiply();
  panel.take_vectors();
  panel.apply_all();
  panel.store(vectors[first + blockIdx.x / panels], vectors.row_stride, order);
}

}  // namespace keel::cuda
