#pragma once

// Loads a tile from global into shared memory in two steps. `fetch` starts to copy a thread's units
// into its own staging memory while the previous tile is processed. `convert` widens them,
// subtracts the centers and stores them in the tile, transposed if necessary.

#include "cuda/activations/elements.cuh"
#include "cuda/activations/slabs.h"
#include "cuda/memory.cuh"

namespace keel::cuda {

template <typename T>
struct Source {
  const T* data = nullptr;
  SampleLayout layout;
  bool vectors = false;  ///< 16 bytes can be moved at a time
};

template <typename T>
inline constexpr int kUnitWidth = 16 / int(sizeof(T));

template <typename T>
bool aligned(const T* data, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

template <typename T>
Source<T> source(const Activations<const T>& x, const Slabs& slabs) {
  const SampleLayout layout = SampleLayout::of(x);
  constexpr int kWidth = kUnitWidth<T>;
  const bool even = layout.channels_last ? slabs.even(kWidth) : x.positions % kWidth == 0;
  return {x.data, layout, even && aligned(x.data, 16)};
}

/// The slab that is loaded: the channel (or -1) and center of each slot, in shared memory.
template <typename A>
struct Staged {
  const int* channel;
  const A* center;
};

template <typename T>
using RawUnit = Pack<T, kUnitWidth<T>>;

/// UNROLL: the number of units that a thread holds at a time, limited by registers.
template <typename T, int THREADS, int SAMPLES, int UNROLL>
struct Stage {
  using A = Accumulator<T>;
  static constexpr int kWidth = kUnitWidth<T>;
  static constexpr int kUnits = SAMPLES * kSlots / kWidth / THREADS;  // of each thread
  static constexpr int kRawBytes = kUnits * THREADS * 16;
  static_assert(SAMPLES % (8 * kWidth) == 0 && SAMPLES <= kLongestTile);
  static_assert(kUnits * kWidth * THREADS == SAMPLES * kSlots);

  /// Starts to copy `count` samples from `start` on.
  static __device__ void fetch(const Source<T>& x, const int* channel, SampleLayout::Start start,
                               int count, RawUnit<T>* raw) {
    if (x.layout.channels_last) {
      if (x.vectors)
        fetch<true, true>(x, channel, start, count, raw);
      else
        fetch<true, false>(x, channel, start, count, raw);
    } else {
      if (x.vectors)
        fetch<false, true>(x, channel, start, count, raw);
      else
        fetch<false, false>(x, channel, start, count, raw);
    }
  }

  /// Fills the samples [0, count) of the tile, and zeros up to the next multiple of 8. Rows of the
  /// tile are samples or slots.
  template <bool ROWS_ARE_SAMPLES, typename Places>
  static __device__ void convert(const Source<T>& x, const Staged<A>& slab, int count,
                                 const RawUnit<T>* raw, A* tile) {
    if (x.layout.channels_last) {
      if (x.vectors)
        convert_as<ROWS_ARE_SAMPLES, Places, true, true>(slab, count, raw, tile);
      else
        convert_as<ROWS_ARE_SAMPLES, Places, true, false>(slab, count, raw, tile);
    } else {
      if (x.vectors)
        convert_as<ROWS_ARE_SAMPLES, Places, false, true>(slab, count, raw, tile);
      else
        convert_as<ROWS_ARE_SAMPLES, Places, false, false>(slab, count, raw, tile);
    }
  }

 private:
  template <bool ALONG_CHANNELS>
  static __device__ Unit unit(int n) {
    return ALONG_CHANNELS ? unit_along_channels<kWidth>(n) : unit_along_samples<kWidth>(n);
  }

  template <bool ALONG_CHANNELS, bool VECTORS>
  static __device__ void fetch(const Source<T>& x, const int* channel, SampleLayout::Start start,
                               int count, RawUnit<T>* raw) {
#pragma unroll(VECTORS ? UNROLL : 1)
    for (int n = int(threadIdx.x); n < kUnits * THREADS; n += THREADS) {
      const Unit u = unit<ALONG_CHANNELS>(n);
      if (u.sample >= count) continue;
      if constexpr (VECTORS) {
        const int c = channel[u.slot];
        if (c >= 0) copy_async<16>(raw + n, x.data + x.layout.offset(start, u.sample, c));
      } else {
#pragma unroll
        for (int v = 0; v < kWidth; ++v) {
          const int sample = u.sample + (ALONG_CHANNELS ? 0 : v);
          const int c = channel[u.slot + (ALONG_CHANNELS ? v : 0)];
          if (c < 0 || sample >= count) continue;
          const T* from = x.data + x.layout.offset(start, sample, c);
          T* to = raw[n].at + v;
          if constexpr (sizeof(T) >= 4)
            copy_async<sizeof(T)>(to, from);
          else
            *to = *from;
        }
      }
    }
  }

  template <bool ROWS_ARE_SAMPLES, typename Places, bool ALONG_CHANNELS, bool VECTORS>
  static __device__ void convert_as(const Staged<A>& slab, int count, const RawUnit<T>* raw,
                                    A* tile) {
    const int end = pieces(count, 8) * 8;
#pragma unroll(VECTORS ? UNROLL : 1)
    for (int n = int(threadIdx.x); n < kUnits * THREADS; n += THREADS) {
      const Unit u = unit<ALONG_CHANNELS>(n);
      if (u.sample >= end) continue;
      const RawUnit<T> stored = raw[n];
      A numbers[kWidth];
      const bool whole = slab.channel[u.slot] >= 0 && u.sample < count;  // for all of a vector
#pragma unroll
      for (int v = 0; v < kWidth; ++v) {
        const int slot = u.slot + (ALONG_CHANNELS ? v : 0);
        const int sample = u.sample + (ALONG_CHANNELS ? 0 : v);
        const bool there = VECTORS ? whole : slab.channel[slot] >= 0 && sample < count;
        numbers[v] = there ? widened(stored.at[v]) - slab.center[slot] : A(0);
      }
      const int row = ROWS_ARE_SAMPLES ? u.sample : u.slot;
      const int column = ROWS_ARE_SAMPLES ? u.slot : u.sample;
      if constexpr (ROWS_ARE_SAMPLES == ALONG_CHANNELS)
        put_along<Places>(numbers, row, column, tile);
      else
        put_down<Places>(numbers, row, column, tile);
    }
  }

  template <typename Places>
  static __device__ void put_along(const A (&numbers)[kWidth], int row, int column, A* tile) {
    if constexpr (kWidth < kPack) {
#pragma unroll
      for (int v = 0; v < kWidth; ++v) tile[Places::number(row, column + v)] = numbers[v];
    } else {
#pragma unroll
      for (int v = 0; v < kWidth; v += kPack)
        *reinterpret_cast<Pack<A>*>(tile + Places::pack(row, (column + v) / kPack)) = {
            numbers[v], numbers[v + 1], numbers[v + 2], numbers[v + 3]};
    }
  }

  template <typename Places>
  static __device__ void put_down(const A (&numbers)[kWidth], int row, int column, A* tile) {
#pragma unroll
    for (int v = 0; v < kWidth; ++v) tile[Places::number(row + v, column)] = numbers[v];
  }
};

}  // namespace keel::cuda
