#pragma once

// A warp's tile in shared memory: 32 or 16 samples of 64 neighbouring channels as they lie in memory, [sample]
// [channel] or [channel][sample], copied there without a stop in registers. Tensor cores take either; the
// center is taken off when a number is read.

#include "cuda/activations/copies.cuh"
#include "cuda/activations/elements.cuh"
#include "cuda/activations/stage.cuh"

namespace keel::cuda {

inline constexpr int kTileSamples = 32;
inline constexpr int kTileWarps = 8;  // of a block, each with tiles of its own or shared by two
inline constexpr int kTileThreads = kTileWarps * 32;

/// Whether the channels are made up of slabs of 64 that hold whole groups.
template <typename T>
constexpr bool fills_slabs(std::int64_t channels, std::int64_t group_size) {
  return sizeof(Accumulator<T>) == 4 && channels % kSlots == 0 && kSlots % group_size == 0;
}

/// Whether a mean is so small that little is lost by taking it off a product instead of the numbers that
/// go into it: up to four deviations, the product's error grows five times at most.
__device__ inline bool small_mean(float mean, float variance) {
  return mean * mean <= 16 * variance;
}

/// A warp reads pairs of neighbours: four from each of eight rows at a time, or eight of four rows
/// (FOUR_ROWS). The rows are so far apart that these lie in different banks.
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

  /// One warp starts to copy `count` samples from `first` on of the channels from `channel` on: the numbers, or those
  /// of their gate. What lies beyond the count is left as it was.
  static __device__ void fetch(const Source<T>& x, bool gate, int channel, std::int64_t first,
                               int count, T* tile) {
    const T* const data = gate ? x.gate : x.data;
    if (x.vectors)
      fetch_vectors(data, x.layout, channel, first, count, tile);
    else
      fetch_numbers(data, x.layout, channel, first, count, tile);
  }

  /// What each of kBitThreads threads notes of a gate's tile: one bit for each of the 32 numbers of its units.
  /// The word w of these units has the bit w; of two numbers in a word the upper one has the bit 16 + w.
  using Bits = unsigned;
  static constexpr int kBitThreads = kRows * kColumns / 32;
  static constexpr int kUnitsEach = 32 / kUnitWidth<T>;

  /// The bits of the gates in a tile, of the unit `thread` and every so-many-th from there.
  static __device__ Bits open_in(const T* tile, int thread) {
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

  /// Zeros in the tile of the numbers whose bits are not set.
  static __device__ void close(T* tile, int thread, Bits bits) {
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
  /// Ones for the numbers of word w whose bits are set.
  static __device__ unsigned mask(Bits bits, int w) {
    if constexpr (sizeof(T) == 4) return (bits >> w & 1u) != 0 ? 0xffffffffu : 0u;
    unsigned halves;  // the bits 15 and 31, each through its half
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
