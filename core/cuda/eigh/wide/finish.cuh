#pragma once

// Back-transforms the tridiagonal matrix's vectors, fixes their signs, and stores them with the
// values. A warp has OWN vectors in registers. The reflectors are loaded into shared memory in
// batches: one batch is in flight while the other is applied, two reflectors at a time.

#include "cuda/eigh/sign.cuh"
#include "cuda/eigh/wide/parts.cuh"
#include "cuda/threads.cuh"
#include "formulas/order.h"
#include "formulas/scale.h"
#include "keel/eigh.h"

namespace keel::cuda {

/// For matrices of up to 32 SQUARES rows.
template <typename T, int SQUARES, int OWN>
struct WideFinisher {
  static constexpr int kWarps = 8, kThreads = 32 * kWarps, kVectors = kWarps * OWN;
  static constexpr int kRow = 32 * SQUARES, kGroup = 4;
  static constexpr int kFit = 32768 / (kRow * int(sizeof(T)));
  static constexpr int kLot = kFit > 16 ? 16 : kFit;  ///< reflectors in a batch
  static_assert(kLot >= 2 && SQUARES % kGroup == 0);
  /// The registers of a vector, and whether two reflectors stay in registers between their two
  /// uses.
  static constexpr int kRegisters = SQUARES * int(sizeof(T)) / 4;
  static constexpr bool kHolds = OWN == 1 && kRegisters <= 32;
  static constexpr int kBlocksAtOnce = OWN * kRegisters <= 64 ? 2 : 1;
  struct Storage {
    union {
      alignas(16) T lot[2][kLot][kRow];
      T panel[kRow][kVectors + 1];
    };
    T scale[2][kLot], overlap[kLot / 2];
    int source[kVectors];
  };
  Storage& s;
  const WideParts<T>& parts;
  int n, stride, warp, lane;
  T vector[OWN][SQUARES];  ///< [i][j]: row lane + 32 j

  __device__ __forceinline__ WideFinisher(Storage& storage, const WideParts<T>& source,
                                          const WideShape& shape)
      : s(storage),
        parts(source),
        n(shape.n),
        stride(shape.stride),
        warp(int(threadIdx.x) / 32),
        lane(int(threadIdx.x) % 32) {}

  __device__ __forceinline__ void take_vectors(const T* vectors) {
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      const int from = s.source[OWN * warp + i];
#pragma unroll
      for (int j = 0; j < SQUARES; ++j) {
        const int row = lane + 32 * j;
        vector[i][j] = from >= 0 && row < n ? vectors[std::int64_t(from) * stride + row] : T(0);
      }
    }
  }

  /// Starts to load reflectors [first, first + kLot), but none after `last`.
  __device__ __forceinline__ void fetch(int first, int last, int buffer) {
    constexpr int kPiece = 16 / int(sizeof(T));
    const int begin = first / (32 * kGroup) * (32 * kGroup), pieces = (stride - begin) / kPiece;
    for (int r = warp; r < kLot && first + r <= last; r += kWarps)
      for (int at = lane; at < pieces; at += 32)
        copy_async<16>(&s.lot[buffer][r][begin + at * kPiece],
                       parts.reflectors + std::int64_t(first + r) * stride + begin + at * kPiece);
    if (int(threadIdx.x) < kLot)
      s.scale[buffer][threadIdx.x] =
          first + int(threadIdx.x) <= last ? parts.reflector_scale[first + threadIdx.x] : T(0);
    commit_copies();
  }

  /// Whether squares kGroup group to kGroup (group + 1) - 1 contain nonzero entries of reflectors
  /// from k - 1 on.
  __device__ bool reaches(int group, int k) const {
    return 32 * kGroup * (group + 1) > k && 32 * kGroup * group < stride;
  }

  /// The dot product of reflectors k and k - 1, needed to apply both at a time.
  __device__ __forceinline__ void find_overlap(int k, int pair, int buffer) {
    T sum = 0;
#pragma unroll
    for (int group = 0; group < SQUARES / kGroup; ++group)
      if (reaches(group, k))
#pragma unroll
        for (int j = kGroup * group; j < kGroup * (group + 1); ++j)
          sum += entry(2 * pair + 1, j, buffer) * entry(2 * pair, j, buffer);
    sum = warp_sum(sum);
    if (lane == 0) s.overlap[pair] = sum;
  }

  __device__ __forceinline__ T entry(int reflection, int j, int buffer) const {
    const volatile T* const row = s.lot[buffer][reflection];  // keeps it out of registers
    return row[lane + 32 * j];
  }

  __device__ __forceinline__ void apply_pair(int k, int pair, int buffer) {
    T x[2][kHolds ? SQUARES : 1], products[2 * OWN] = {};
#pragma unroll
    for (int group = 0; group < SQUARES / kGroup; ++group)
      if (reaches(group, k))
#pragma unroll
        for (int j = kGroup * group; j < kGroup * (group + 1); ++j) {
          const T x0 = entry(2 * pair + 1, j, buffer), x1 = entry(2 * pair, j, buffer);
          if constexpr (kHolds) {
            x[0][j] = x0;
            x[1][j] = x1;
          }
#pragma unroll
          for (int i = 0; i < OWN; ++i) {
            products[i] += x0 * vector[i][j];
            products[OWN + i] += x1 * vector[i][j];
          }
        }
    const T product = warp_sums(lane, products);
    constexpr int kShare = 32 / (2 * OWN);
    const T scale = s.scale[buffer][2 * pair + 1], next_scale = s.scale[buffer][2 * pair];
    const T twice = next_scale * s.overlap[pair];  // the second acts on what the first left
    T first[OWN], second[OWN];
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      first[i] = scale * __shfl_sync(0xffffffffu, product, i * kShare);
      second[i] =
          next_scale * __shfl_sync(0xffffffffu, product, (OWN + i) * kShare) - twice * first[i];
    }
#pragma unroll
    for (int group = 0; group < SQUARES / kGroup; ++group)
      if (reaches(group, k))
#pragma unroll
        for (int j = kGroup * group; j < kGroup * (group + 1); ++j) {
          const T x0 = kHolds ? x[0][kHolds ? j : 0] : entry(2 * pair + 1, j, buffer);
          const T x1 = kHolds ? x[1][kHolds ? j : 0] : entry(2 * pair, j, buffer);
#pragma unroll
          for (int i = 0; i < OWN; ++i)
            vector[i][j] = fma(-second[i], x1, fma(-first[i], x0, vector[i][j]));
        }
  }

  /// Reflector n - 2 is zero, so their number can be taken as even.
  __device__ __forceinline__ void apply_all() {
    const int last = (n - 3) | 1;
    int buffer = 0;
    fetch(last / kLot * kLot, last, buffer);
    for (int first = last / kLot * kLot; first >= 0; first -= kLot, buffer ^= 1) {
      if (first > 0) {
        fetch(first - kLot, last, buffer ^ 1);
        await_copies_but<1>();
      } else {
        await_copies_but<0>();
      }
      __syncthreads();
      const int pairs = (min(kLot, last + 1 - first)) / 2;
      if (warp < pairs) find_overlap(first + 2 * warp + 1, warp, buffer);
      __syncthreads();
      for (int pair = pairs - 1; pair >= 0; --pair) apply_pair(first + 2 * pair + 1, pair, buffer);
      __syncthreads();
    }
  }

  __device__ __forceinline__ void store(int first, bool finite, T* result, std::int64_t row_stride,
                                        EighOrder order) {
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      LargestEntry<T> largest;
#pragma unroll
      for (int j = 0; j < SQUARES; ++j)
        if (lane + 32 * j < n) largest.offer(vector[i][j], parts.order[lane + 32 * j]);
      largest.share(32);
#pragma unroll
      for (int j = 0; j < SQUARES; ++j)
        if (lane + 32 * j < n)
          s.panel[parts.order[lane + 32 * j]][OWN * warp + i] =
              finite ? largest.with_sign(vector[i][j]) : T(NAN);
    }
    __syncthreads();
    const int count = min(kVectors, n - first);
    for (int at = int(threadIdx.x); at < n * kVectors; at += kThreads) {
      const int r = at / kVectors, c = at % kVectors;
      if (c < count) result[r * row_stride + place_in(order, n, n - 1 - first - c)] = s.panel[r][c];
    }
  }
};

template <typename T, int SQUARES, int OWN>
__global__ void __launch_bounds__(WideFinisher<T, SQUARES, OWN>::kThreads,
                                  WideFinisher<T, SQUARES, OWN>::kBlocksAtOnce)
    wide_finish_kernel(WideShape shape, bool merged_before, unsigned char* memory,
                       std::int64_t bytes, const bool* wanted, std::int64_t first_matrix, T* values,
                       Matrices<T> vectors, EighOrder order, EighStatus* status) {
  if (wanted != nullptr && !wanted[blockIdx.y]) return;
  using Finisher = WideFinisher<T, SQUARES, OWN>;
  const WideParts<T> parts(memory + std::int64_t(blockIdx.y) * bytes, shape.stride);
  const std::int64_t index = first_matrix + blockIdx.y;
  auto& s = *reinterpret_cast<typename Finisher::Storage*>(shared_memory());
  const int first = int(blockIdx.x) * Finisher::kVectors, thread = int(threadIdx.x), n = shape.n;
  const UnitScale<T> scale(from_bits(*parts.largest));
  if (thread < Finisher::kVectors) {
    const int i = first + thread, j = i < n ? parts.sorted[i] : -1;
    s.source[thread] = j;
    if (j >= 0)
      values[index * n + place_in(order, n, n - 1 - i)] =
          scale.finite ? scale.up(parts.value[j]) : T(NAN);
  }
  if (thread == 0 && blockIdx.x == 0 && status != nullptr)
    status[index] = scale.finite ? EighStatus::converged : EighStatus::not_finite;
  __syncthreads();
  Finisher finisher(s, parts, shape);
  finisher.take_vectors(merged_before ? parts.merged : parts.vectors);
  finisher.apply_all();
  finisher.store(first, scale.finite, vectors[index], vectors.row_stride, order);
}

}  // namespace keel::cuda
