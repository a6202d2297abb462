#pragma once

// The coefficients of a slab for tensor cores: split, and in fragment order, so that a warp reads
// 16 consecutive bytes per lane.

#include "cuda/activations/tile.cuh"
#include "cuda/affine/kernel.cuh"
#include "cuda/matrix/tensor_core.cuh"
#include "cuda/threads.cuh"

namespace keel::cuda {

/// Groups of D channels. LAST: as the right operand (two numbers of a lane, followed by their low
/// parts), otherwise as the left operand (four numbers; the low parts are 32 lanes further on).
template <bool LAST, int D>
struct CoefficientParts {
  static constexpr int kNumbers = kSlots * D * 2;
  static constexpr int kSteps = D / 8;  // along the channels that are summed over

  /// The index of the high part of the coefficient of output slot i for its group's input j. The
  /// low part is kToLow further on.
  static constexpr int kToLow = LAST ? 2 : 128;
  static __device__ unsigned place(unsigned i, unsigned j) {
    if (LAST) {
      const unsigned column = i / 16 * 2 + i % 2, lane = i % 16 / 2 * 4 + j % 8 / 2;
      return ((column * kSteps + j / 8) * 32 + lane) * 4 + j % 2;
    }
    const unsigned lane = i % 8 * 4 + j % 4;
    return ((i / 16 * kSteps + j / 8) * 2 * 32 + lane) * 4 + i / 8 % 2 + j / 4 % 2 * 2;
  }

  /// A thread's share of the coefficients. All loads are issued before the first use. Adjacent
  /// threads read adjacent numbers: along rows, or, if transposed, down columns.
  struct Share {
    static constexpr int kEach = kSlots * D / kTileThreads;
    static constexpr int kRowsAtOnce = kTileThreads / D, kColumnsAtOnce = 4;
    static_assert(D % kRowsAtOnce == 0);
    float at[kEach], mirrored[kEach];

    template <typename Term>
    __device__ void load(const Term& term, int channel) {
      const unsigned thread = threadIdx.x;
      const std::int64_t stride = term.matrix.row_stride, next = term.matrix.batch_stride;
      const float* matrix = term.matrix[channel / D];
      if (term.coefficient == Coefficient::transposed) {
        const unsigned i = transposed_i(), j = transposed_j();
        matrix += i / D * next + i % D + j * stride;
#pragma unroll
        for (int k = 0; k < kEach; ++k) at[k] = matrix[k * kColumnsAtOnce * stride];
        return;
      }
      const unsigned i = thread / D, j = thread % D;
      const float* mirror = matrix + j * stride + i;
      matrix += i * stride + j;
#pragma unroll
      for (int k = 0; k < kEach; ++k)
        at[k] = matrix[k * kRowsAtOnce / D * next + k * kRowsAtOnce % D * stride];
      if (term.coefficient != Coefficient::symmetric) return;
#pragma unroll
      for (int k = 0; k < kEach; ++k)
        mirrored[k] = mirror[k * kRowsAtOnce / D * next + k * kRowsAtOnce % D];
    }

    /// A warp takes eight adjacent numbers of four rows: whole memory sectors, and few bank
    /// conflicts in shared memory.
    static __device__ unsigned transposed_i() { return threadIdx.x % 8 + threadIdx.x / 32 * 8; }
    static __device__ unsigned transposed_j() { return threadIdx.x % 32 / 8; }
    static_assert(kTileThreads == 4 * kSlots);

    /// Calls put(i, j, coefficient) for each of them.
    template <typename Term, typename Put>
    __device__ void for_each(const Term& term, float divisor, const Put& put) {
      const unsigned thread = threadIdx.x;
      if (term.coefficient == Coefficient::transposed) {
#pragma unroll
        for (int k = 0; k < kEach; ++k)
          put(transposed_i(), transposed_j() + k * kColumnsAtOnce, at[k]);
        return;
      }
      if (term.coefficient == Coefficient::symmetric || term.coefficient == Coefficient::doubled) {
        const bool mirror = term.coefficient == Coefficient::symmetric;
        const float factor = 1 / divisor;
#pragma unroll
        for (int k = 0; k < kEach; ++k) at[k] = (at[k] + (mirror ? mirrored[k] : at[k])) * factor;
      }
#pragma unroll
      for (int k = 0; k < kEach; ++k) put(thread / D + k * kRowsAtOnce, thread % D, at[k]);
    }
  };

  static __device__ void store(float* parts, unsigned i, unsigned j, float value) {
    const Split both = split(value);
    parts[place(i, j)] = __uint_as_float(both.high);
    parts[place(i, j) + kToLow] = __uint_as_float(both.low);
  }

  /// The coefficient of output slot i for input j.
  static __device__ float value(const float* parts, unsigned i, unsigned j) {
    return parts[place(i, j)] + parts[place(i, j) + kToLow];
  }
};

/// The same for bfloat16 with contiguous channels: in two bfloat16 parts, as the right operand. Both
/// parts of four numbers are 16 bytes per lane. A group takes no more memory than in
/// CoefficientParts and begins at the same place, so each group of a slab may be stored in either
/// way.
template <int D>
struct Bfloat16Coefficients {
  static constexpr int kSteps = D / 16;
  static constexpr int kGroupWords = CoefficientParts<true, D>::kNumbers * D / kSlots;
  static_assert(D * D <= kGroupWords);

  /// The index of the word that holds coefficient j (even) of output slot i, with j + 1 in its
  /// upper half.
  static __device__ unsigned place(unsigned i, unsigned j, unsigned part) {
    const unsigned column = i % D / 16 * 2 + i % 2, lane = i % 16 / 2 * 4 + j % 8 / 2;
    const unsigned block = (column * kSteps + j / 16) * 32 + lane, half = j / 8 % 2;
    return i / D * kGroupWords + block * 4 + part * 2 + half;
  }

  static __device__ void store(float* words, unsigned i, unsigned j, float value) {
    auto* halves = reinterpret_cast<unsigned short*>(words);
    const Bfloat16Parts parts = in_bfloat16(value);
#pragma unroll
    for (unsigned p = 0; p < 2; ++p) halves[2 * place(i, j, p) + j % 2] = parts.part[p];
  }

  static __device__ float value(const float* words, unsigned i, unsigned j) {
    const auto* halves = reinterpret_cast<const unsigned short*>(words);
    float sum = 0;
#pragma unroll
    for (int p = 1; p >= 0; --p)
      sum += __uint_as_float(unsigned(halves[2 * place(i, j, unsigned(p)) + j % 2]) << 16);
    return sum;
  }
};

/// from[i] -= sum_j coefficient(i, j) center[j] in these groups, with all threads, four per slot.
template <typename Coefficients, int D>
__device__ void subtract_product(const StoredGroups& groups, const float* parts,
                                 const float* center, float* from) {
  static_assert(kTileThreads == 4 * kSlots && D % 8 == 0);
  const unsigned i = threadIdx.x / 4;  // a warp's eight are in one group
  if (!groups.has(int(i))) return;
  double sum = 0;
#pragma unroll 4
  for (unsigned j = threadIdx.x % 4 * 2; j < D; j += 8)
    sum += double(Coefficients::value(parts, i, j)) * center[i / D * D + j] +
           double(Coefficients::value(parts, i, j + 1)) * center[i / D * D + j + 1];
  sum = Lanes<4>::sum(sum);
  if (threadIdx.x % 4 == 0) from[i] = float(from[i] - sum);
}

}  // namespace keel::cuda
