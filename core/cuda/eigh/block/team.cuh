#pragma once

// The threads that share one matrix, and their shared memory. Four threads (lanes) hold a row or
// column in registers: each has every fourth of its 16-byte pieces. So a sum along it takes two
// shuffles.

#include <cstdint>

#include "cuda/memory.cuh"
#include "cuda/threads.cuh"
#include "formulas/quad.h"

namespace keel::cuda {

template <typename T>
inline constexpr T kEpsilon = sizeof(T) == 4 ? T(1.1920928955078125e-07) : T(2.220446049250313e-16);

/// N is a power of two, at least 4. Matrices have n <= N. A team of more than a warp is the first
/// kSize threads of a block. All threads of a block meet at each of its barriers: any others stand by.
template <typename T, int N>
struct Team : MatrixThreads<4 * N>, Lanes<4> {
  using Base = MatrixThreads<4 * N>;
  using Base::thread, Base::kBlock;
  using Lanes<4>::kLanes, Lanes<4>::sum;
  static constexpr int kSize = N * kLanes, kOwn = N / kLanes;
  static constexpr int kPiece = kOwn * int(sizeof(T)) < 16 ? kOwn : 16 / int(sizeof(T));
  static constexpr int kRow = N + (N > 4 ? 16 / int(sizeof(T)) : 0);  ///< avoids bank conflicts

  __device__ int column() const { return thread() / kLanes; }
  __device__ int lane() const { return thread() % kLanes; }
  /// The position in its row of this thread's k-th number.
  __device__ int element(int k) const {
    return (k / kPiece * kLanes + lane()) * kPiece + k % kPiece;
  }

  __device__ void load(const T* row, T (&own)[kOwn]) const {
#pragma unroll
    for (int k = 0; k < kOwn; k += kPiece) {
      const auto piece = pack_at<kPiece>(row + element(k));
#pragma unroll
      for (int i = 0; i < kPiece; ++i) own[k + i] = piece.at[i];
    }
  }
  __device__ void store(T* row, const T (&own)[kOwn]) const {
#pragma unroll
    for (int k = 0; k < kOwn; k += kPiece) {
      Pack<T, kPiece> piece;
#pragma unroll
      for (int i = 0; i < kPiece; ++i) piece.at[i] = own[k + i];
      pack_at<kPiece>(row + element(k)) = piece;
    }
  }

  /// Calls body(x[k], k < i) for this lane's share of all k < count. x is aligned like a
  /// row, count <= most, a power of two of at least 4. Many are read before the first is used.
  template <typename Body>
  __device__ void for_each_of(const T* x, int most, int count, int i, const Body& body) const {
    constexpr int kAtOnce = kOwn * int(sizeof(T)) < 64 ? kOwn : 64 / int(sizeof(T));
    // Positions after the lane's first one are constants. The compiler would keep sums in registers.
    const int start = element(0), own_count = count - start, own_i = i - start;
#pragma unroll
    for (int first = 0; first < kOwn; first += kAtOnce) {
      if (kLanes * first >= most) break;
      Pack<T, kPiece> piece[kAtOnce / kPiece];
#pragma unroll
      for (int k = 0; k < kAtOnce; k += kPiece)
        piece[k / kPiece] = pack_at<kPiece>(x + min(start + kLanes * (first + k), most - kPiece));
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int after = kLanes * (first + k / kPiece * kPiece) + k % kPiece;
        if (after < own_count) body(piece[k / kPiece].at[k % kPiece], after < own_i);
      }
    }
  }

  __device__ T dot(const T (&x)[kOwn], const T (&y)[kOwn]) const {
    constexpr int kSums = kOwn < 4 ? kOwn : 4;
    T partial[kSums] = {};
#pragma unroll
    for (int k = 0; k < kOwn; ++k) partial[k % kSums] += x[k] * y[k];
#pragma unroll
    for (int k = 1; k < kSums; ++k) partial[0] += partial[k];
    return sum(partial[0]);
  }
};

/// The data of the merges in divide and conquer, except the vectors.
template <typename T, int N>
struct MergeStorage {
  alignas(16) T value[N];
  T coupling[N], sorted_value[N], sorted_weight[N];
  T pole[N], weight[N], offset[N], refined[N], dropped_pole[N];
  SecularRotation<T> rotation[N];
  int sorted_source[N], source[N], origin[N], dropped_source[N], alive[N];
};

/// The shared memory of one matrix. It has three matrices: the current eigenvectors, column by
/// column; the update by which they are multiplied; the reflectors.
template <typename T, int N>
struct Storage : MergeStorage<T, N> {
  static constexpr int kRow = Team<T, N>::kRow;
  alignas(16) T vectors[N * kRow];
  alignas(16) T update[N * kRow];
  alignas(16) T reflectors[N * kRow];
  alignas(16) T p[kRow];
  T reflector_scale[N], diagonal[N];
  T part_exponent[N];  ///< of each row, if has_parts
  bool has_parts;
  alignas(16) int order[N];
  T exchange[32];
};

}  // namespace keel::cuda
