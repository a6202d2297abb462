#pragma once

// A warp's tile in shared memory: 32 or 16 samples of 64 consecutive channels in the order of
// memory, [sample][channel] or [channel][sample]. It is copied asynchronously. Tensor cores accept
// either order. The center is subtracted when a number is read.

#include "cuda/activations/elements.cuh"
#include "cuda/activations/stage.cuh"
#include "cuda/copies.cuh"

namespace keel::cuda {

inline constexpr int kTileSamples = 32;
inline constexpr int kTileWarps = 8;  // of a block; a tile belongs to one warp or to two
inline constexpr int kTileThreads = kTileWarps * 32;

/// Whether the channels consist of slabs of 64 that hold whole groups.
template <typename T>
constexpr bool fills_slabs(std::int64_t channels, std::int64_t group_size) {
  return sizeof(Accumulator<T>) == 4 && channels % kSlots == 0 && kSlots % group_size == 0;
}

/// Whether the mean is so small that it can be subtracted from a product instead of from its
/// operand: up to four deviations, the error of the product grows at most five times.
__device__ inline bool small_mean(float mean, float variance) {
  return mean * mean <= 16 * variance;
}

/// A warp reads pairs of adjacent numbers: four from each of eight rows at a time, or eight from
/// each of four rows (FOUR_ROWS). The row stride keeps these in different banks.
template <typename T, bool LAST, bool FOUR_ROWS, int SAMPLES = kTileSamples>
struct WarpTile {
  static constexpr int kRows = LAST ? SAMPLES : kSlots;
  static constexpr int kColumns = LAST ? kSlots : SAMPLES;
  static constexpr int kGap = (sizeof(T) == 4 || FOUR_ROWS ? 32 : 16) / int(sizeof(T));
  static constexpr int kStride = kColumns + kGap;
  static constexpr int kNumbers = kRows * kStride;
  static constexpr int kBytes = kNumbers * int(sizeof(T));
  static_assert(kBytes % 16 == 0 && kStride * sizeof(T) % 16 == 0);

  static __device__ float2 pair(const T* tile, int row, int column) {
    const auto two = *reinterpret_cast<const Pack<T, 2>*>(tile + row * kStride + column);
    return {widened(two.at[0]), widened(two.at[1])};
  }

  /// One warp starts to copy `count` samples from `first` on, of the channels from `channel` on:
  /// the numbers, or their gate. Samples beyond `count` are left unchanged.
  static __device__ void fetch(const Source<T>& x, bool gate, int channel, std::int64_t first,
                               int count, T* tile) {
    const T* const data = gate ? x.gate : x.data;
    if (x.vectors)
      fetch_vectors(data, x.layout, channel, first, count, tile);
    else
      fetch_numbers(data, x.layout, channel, first, count, tile);
  }

  /// The gate bits of one of kBitThreads threads: one bit for each of the 32 numbers in its units.
  /// Word w of these units has bit w. If a word holds two numbers, the upper one has bit 16 + w.
  using Bits = unsigned;
  static constexpr int kBitThreads = kRows * kColumns / 32;
  static constexpr int kUnitsEach = 32 / kUnitWidth<T>;

  /// The gate bits of a tile, for unit `thread` and every kBitThreads-th after it.
  static __device__ Bits gate_bits(const T* tile, int thread) {
    Bits bits = 0;
#pragma unroll
    for (int k = 0; k < kUnitsEach; ++k) {
      const auto gate =
          *reinterpret_cast<const Pack<unsigned>*>(unit(tile, thread + kBitThreads * k));
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int w = 4 * k + v;
        if constexpr (sizeof(T) == 2)
          bits |= open_halves<T>(gate.at[v]) & (0x10001u << w);
        else
          bits |= Bits(is_open(__uint_as_float(gate.at[v]))) << w;
      }
    }
    return bits;
  }

  /// Zeroes the numbers in the tile whose bits are not set.
  static __device__ void apply_gate(T* tile, int thread, Bits bits) {
#pragma unroll
    for (int k = 0; k < kUnitsEach; ++k) {
      auto& place = *reinterpret_cast<Pack<unsigned>*>(unit(tile, thread + kBitThreads * k));
      Pack<unsigned> words = place;
#pragma unroll
      for (int v = 0; v < 4; ++v) words.at[v] &= mask(bits, 4 * k + v);
      place = words;
    }
  }

 private:
  /// A mask of the numbers in word w whose bits are set.
  static __device__ unsigned mask(Bits bits, int w) {
    if constexpr (sizeof(T) == 4) return (bits >> w & 1u) != 0 ? 0xffffffffu : 0u;
    unsigned halves;  // bits 15 and 31, each extended over its half
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(halves) : "r"(bits << (15 - w)));
    return halves;
  }

  template <typename U>
  static __device__ U* unit(U* tile, int n) {
    constexpr int kAcross = kColumns / kUnitWidth<T>;
    return tile + n / kAcross * kStride + n % kAcross * kUnitWidth<T>;
  }

  static __device__ void fetch_vectors(const T* data, const SampleLayout& layout, int channel,
                                       std::int64_t first, int count, T* tile) {
    constexpr int kWidth = kUnitWidth<T>, kAcross = kColumns / kWidth, kDown = 32 / kAcross;
    const int lane = int(threadIdx.x) % 32;
    const int row = lane / kAcross, column = lane % kAcross * kWidth;
    T* to = tile + row * kStride + column;
    if constexpr (LAST) {
      const T* from = data + (first + row) * layout.channels + channel + column;
#pragma unroll
      for (int k = 0; k < kRows / kDown; ++k)
        if (row + k * kDown < count)
          copy_async<16>(to + k * kDown * kStride, from + k * kDown * layout.channels);
    } else {
      if (column >= count) return;
      const T* from = data + layout.offset(layout.start(first + column), 0, channel + row);
#pragma unroll
      for (int k = 0; k < kRows / kDown; ++k)
        copy_async<16>(to + k * kDown * kStride, from + k * kDown * layout.positions);
    }
  }

  static __device__ void fetch_numbers(const T* data, const SampleLayout& layout, int channel,
                                       std::int64_t first, int count, T* tile) {
    const auto start = layout.start(first);
#pragma unroll 1
    for (int n = int(threadIdx.x) % 32; n < kRows * kColumns; n += 32) {
      const int row = n / kColumns, column = n % kColumns;
      const int sample = LAST ? row : column, slot = LAST ? column : row;
      if (sample >= count) continue;
      const T* from = data + layout.offset(start, sample, channel + slot);
      T* to = tile + row * kStride + column;
      if constexpr (sizeof(T) == 4)
        copy_async<4>(to, from);
      else
        *to = *from;
    }
  }
};

}  // namespace keel::cuda
