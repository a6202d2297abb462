#pragma once

// The coefficients of a slab for tensor cores: split, and in the order in which lanes need them, so that
// each reads 16 bytes next to its neighbour's.

#include "activation_tile.cuh"
#include "affine_kernel.cuh"
#include "tensor_core.cuh"

namespace keel::cuda {

/// Groups of D channels. LAST: as the right operand (two numbers of a lane, and their low parts), or else
/// as the left one (four numbers, and 32 lanes on their low parts).
template <bool LAST, int D>
struct CoefficientParts {
  static constexpr int kNumbers = kSlots * D * 2;
  static constexpr int kSteps = D / 8;  // along the channels that are summed over

  /// Where the coefficient of output slot i on its group's input j has its high part, and how far on its
  /// low one is.
  static constexpr int kToLow = LAST ? 2 : 128;
  static __device__ unsigned place(unsigned i, unsigned j) {
    if (LAST) {
      const unsigned column = i / 16 * 2 + i % 2, lane = i % 16 / 2 * 4 + j % 8 / 2;
      return ((column * kSteps + j / 8) * 32 + lane) * 4 + j % 2;
    }
    const unsigned lane = i % 8 * 4 + j % 4;
    return ((i / 16 * kSteps + j / 8) * 2 * 32 + lane) * 4 + i / 8 % 2 + j / 4 % 2 * 2;
  }

  /// A thread's share of the coefficients. All are on their way before the first is used, and
  /// neighbouring threads read neighbours in memory: along rows, or (transposed) down columns.
  struct Share {
    static constexpr int kEach = kSlots * D / kTileThreads;
    static constexpr int kRowsAtOnce = kTileThreads / D, kColumnsAtOnce = kTileThreads / kSlots;
    static_assert(D % kRowsAtOnce == 0);
    float at[kEach], mirrored[kEach];

    template <typename Term>
    __device__ void load(const Term& term, int channel) {
      const unsigned thread = threadIdx.x;
      const std::int64_t stride = term.matrix.row_stride, next = term.matrix.batch_stride;
      const float* matrix = term.matrix[channel / D];
      if (term.coefficient == Coefficient::transposed) {
        const unsigned i = thread % kSlots, j = thread / kSlots;
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

    template <typename Term>
    __device__ void store(const Term& term, float divisor, float* parts) {
      const unsigned thread = threadIdx.x;
      if (term.coefficient == Coefficient::transposed) {
#pragma unroll
        for (int k = 0; k < kEach; ++k)
          put(thread % kSlots, thread / kSlots + k * kColumnsAtOnce, at[k], parts);
        return;
      }
      if (term.coefficient == Coefficient::symmetric) {
        const float factor = 1 / divisor;
#pragma unroll
        for (int k = 0; k < kEach; ++k) at[k] = (at[k] + mirrored[k]) * factor;
      }
#pragma unroll
      for (int k = 0; k < kEach; ++k) put(thread / D + k * kRowsAtOnce, thread % D, at[k], parts);
    }

    static __device__ void put(unsigned i, unsigned j, float value, float* parts) {
      const Split both = split(value);
      parts[place(i, j)] = __uint_as_float(both.high);
      parts[place(i, j) + kToLow] = __uint_as_float(both.low);
    }
  };
};

}  // namespace keel::cuda
