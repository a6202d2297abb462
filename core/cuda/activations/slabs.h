#pragma once

// How the CUDA passes split activations: slabs of 64 channels, tiles of samples, and the mapping of
// threads. Plain index arithmetic for host and device.

#include <algorithm>
#include <cstdint>

#include "cuda/plan.h"
#include "host_device.h"
#include "keel/activations.h"

namespace keel::cuda {

inline constexpr int kPack = 4;           // numbers that are read from shared memory at once
inline constexpr int kLongestTile = 128;  // samples

/// The fewest blocks, at most `most`, with which no team has more tiles than with `most` blocks of
/// `teams` teams. The rest of the GPU is left to the next kernel, which may start early.
inline std::int64_t evenly(std::int64_t tiles, std::int64_t most, std::int64_t teams) {
  const std::int64_t rounds = std::max<std::int64_t>(1, pieces(tiles, most * teams));
  return std::max<std::int64_t>(1, pieces(tiles, rounds * teams));
}

/// The mapping of channels to slabs. A slab holds as many whole groups of at most 64 channels as
/// fit, each padded to a multiple of `multiple` slots, so that no pack spans two groups. A larger
/// group takes several slabs, its parts.
struct Slabs {
  int channels = 0;
  int group_size = 0;
  int groups = 0;
  int padded = 0;           ///< slots of a group
  int groups_per_slab = 0;  ///< at most `groups`
  int parts = 1;            ///< slabs of a group
  int count = 0;

  static Slabs of(int channels, int group_size, int multiple) {
    Slabs slabs;
    slabs.channels = channels;
    slabs.group_size = group_size;
    slabs.groups = channels / group_size;
    if (group_size > kSlots) {
      slabs.padded = kSlots;
      slabs.groups_per_slab = 1;
      slabs.parts = pieces(group_size, kSlots);
      slabs.count = slabs.groups * slabs.parts;
    } else {
      slabs.padded = pieces(group_size, multiple) * multiple;
      slabs.groups_per_slab = std::min(slabs.groups, kSlots / slabs.padded);
      slabs.count = pieces(slabs.groups, slabs.groups_per_slab);
    }
    return slabs;
  }

  /// The channel in a slot of a slab, or -1 for padding, which holds zeros.
  KEEL_HOST_DEVICE int channel(int slab, int slot) const {
    if (parts > 1) {
      const int index = slab % parts * kSlots + slot;
      return index < group_size ? slab / parts * group_size + index : -1;
    }
    const int place = slot / padded, index = slot % padded;
    const int group = slab * groups_per_slab + place;
    return place < groups_per_slab && index < group_size && group < groups
               ? group * group_size + index
               : -1;
  }

  /// Whether channels can be moved `width` at a time: slots correspond to consecutive channels, and
  /// every slab starts and ends at a multiple of `width`.
  bool even(int width) const {
    if (channels % width != 0) return false;
    if (parts > 1) return group_size % width == 0;
    return padded == group_size && (count == 1 || groups_per_slab * group_size % width == 0);
  }
};

/// The position of samples in memory, for tiles of at most kLongestTile samples.
struct SampleLayout {
  std::int64_t channels = 0;
  std::int64_t positions = 1;
  std::int64_t samples = 0;
  bool channels_last = false;    ///< also true for a single position, which is the same
  std::uint32_t reciprocal = 0;  ///< of positions, if a tile can span several images

  template <typename T>
  static SampleLayout of(const Activations<T>& x) {
    const bool last = x.order == Order::channels_last || x.positions == 1;
    const bool shorter = !last && x.positions > 0 && x.positions < kLongestTile;
    return {x.channels, x.positions, x.samples(), last,
            shorter ? std::uint32_t(65536 / x.positions + 1) : 0};
  }

  struct Start {
    std::int64_t image, position;
  };

  KEEL_HOST_DEVICE Start start(std::int64_t sample) const {
    if (channels_last) return {sample, 0};
    if (samples <= 0x7fffffff) {
      const std::uint32_t image = std::uint32_t(sample) / std::uint32_t(positions);
      return {image, sample - image * positions};
    }
    return {sample / positions, sample % positions};
  }

  /// The offset of the sample `local` (less than kLongestTile) samples after the start.
  KEEL_HOST_DEVICE std::int64_t offset(const Start& start, int local, int channel) const {
    if (channels_last) return (start.image + local) * channels + channel;
    const std::int64_t position = start.position + local;
    // Exact for positions < 128 and position < 256, as the product's error stays below 1.
    const std::int64_t carry = positions >= kLongestTile
                                   ? std::int64_t(position >= positions)
                                   : std::int64_t(std::uint32_t(position) * reciprocal >> 16);
    return ((start.image + carry) * channels + channel) * positions +
           (position - carry * positions);
  }
};

/// 16 bytes of a tile: V consecutive elements in memory. A warp takes 8 consecutive units (128
/// bytes, or 64 if a row has no more) at each of four places. This avoids bank conflicts when a
/// tile is transposed on the way into shared memory.
struct Unit {
  int slot, sample;
};

template <int V>
KEEL_HOST_DEVICE Unit unit_along_channels(int n) {
  constexpr int kRuns = kSlots / V / 8;
  return {(n / 32 % kRuns * 8 + n % 8) * V, n / 32 / kRuns * 4 + n / 8 % 4};
}

template <int V>
KEEL_HOST_DEVICE Unit unit_along_samples(int n) {
  return {n / 32 % (kSlots / 4) * 4 + n / 8 % 4, (n / (8 * kSlots) * 8 + n % 8) * V};
}

/// A tile in shared memory: rows of COLUMNS numbers. The packs of a row are permuted (swizzled), so
/// that columns can be written and rows read without bank conflicts. Rows 4q ... 4q+3 have the same
/// permutation. With PAIRED, the two packs of eight adjacent numbers are half a row apart: a thread
/// that reads eight numbers reads one pack next to its neighbours' packs, then the other.
template <int COLUMNS, bool PAIRED>
struct TilePlaces {
  static constexpr int kColumns = COLUMNS;

  static KEEL_HOST_DEVICE int swizzle(int row) { return (row >> 2 ^ row >> 5) & 15; }
  static KEEL_HOST_DEVICE int arranged(int pack) {
    static_assert(!PAIRED || COLUMNS == 64);
    return PAIRED ? pack >> 1 | (pack & 1) << 3 : pack;
  }
  /// The index of the first number of a pack.
  static KEEL_HOST_DEVICE int pack(int row, int pack) {
    return row * COLUMNS + (arranged(pack) ^ swizzle(row)) * kPack;
  }
  static KEEL_HOST_DEVICE int number(int row, int column) {
    return pack(row, column / kPack) + column % kPack;
  }
};

/// The position of entry `index` of a lower triangle stored row by row.
struct Cell {
  int row, column;
};
constexpr KEEL_HOST_DEVICE Cell cell_of_triangle(int index) {
  int row = 0;
  while ((row + 1) * (row + 2) / 2 <= index) ++row;
  return {row, index - row * (row + 1) / 2};
}

}  // namespace keel::cuda
