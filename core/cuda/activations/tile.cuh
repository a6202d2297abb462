#pragma once

// A warp's tile in shared memory: 32 or 16 samples of 64 consecutive channels in the order of
// memory, [sample][channel] or [channel][sample]. It is copied asynchronously. Tensor cores accept
// either order. The center is subtracted when a number is read.

#include "cuda/activations/elements.cuh"
#include "cuda/activations/stage.cuh"
#include "cuda/memory.cuh"

namespace keel::cuda {

inline constexpr int kTileSamples = 32;
inline constexpr int kTileWarps = 8;  // of a block; a tile belongs to one warp or to two
inline constexpr int kTileThreads = kTileWarps * 32;

/// Whether the mean is so small that it can be subtracted from a product instead of from its
/// operand: up to four deviations, the error of the product grows at most five times.
__device__ inline bool small_mean(float mean, float variance) {
  return mean * mean <= 16 * variance;
}

/// The groups of a slab whose numbers may be multiplied as stored: those whose channels all have a
/// small mean. Decided group by group, so that a group's bits do not depend on its neighbours.
struct StoredGroups {
  unsigned long long small = 0;  // a bit for each slot
  int group_size = 1;            // a power of two

  __device__ unsigned long long group_of(int slot) const {
    return (~0ull >> (kSlots - group_size)) << (slot & -group_size);
  }
  __device__ bool has(int slot) const { return (~small & group_of(slot)) == 0; }
  __device__ bool all() const { return ~small == 0; }
  /// A bit for each slot of these groups.
  __device__ unsigned long long slots() const {
    unsigned long long found = 0;
    for (int slot = 0; slot < kSlots; slot += group_size)
      if (has(slot)) found |= group_of(slot);
    return found;
  }
};

/// Tells every thread, for each slot, whether `small` is true in the thread of that number. `room` is
/// two words of shared memory, free before and after.
__device__ inline unsigned long long gathered_slots(bool small, unsigned (&room)[2]) {
  if (threadIdx.x < kSlots) {
    const unsigned slots = __ballot_sync(0xffffffffu, small);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = slots;
  }
  __syncthreads();
  return room[0] | static_cast<unsigned long long>(room[1]) << 32;
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

  /// One warp starts to copy `count` samples from `first` on, of the channels from `channel` on.
  /// Samples beyond `count` are left unchanged.
  static __device__ void fetch(const Source<T>& x, int channel, std::int64_t first, int count,
                               T* tile) {
    if (x.vectors)
      fetch_vectors(x.data, x.layout, channel, first, count, tile);
    else
      fetch_numbers(x.data, x.layout, channel, first, count, tile);
  }

  /// One warp sets the samples from `count` on to zero.
  static __device__ void clear(int count, T* tile) {
    const int missing = SAMPLES - count;
    for (int n = int(threadIdx.x) % 32; n < missing * kSlots; n += 32) {
      const int sample = count + (LAST ? n / kSlots : n % missing);
      const int slot = LAST ? n % kSlots : n / missing;
      tile[(LAST ? sample : slot) * kStride + (LAST ? slot : sample)] = T{};
    }
  }

 private:
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
