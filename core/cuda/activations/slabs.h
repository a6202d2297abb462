#pragma once

// How the CUDA passes over activations cut them up: slabs of 64 channels, tiles of samples, and who
// carries what. Plain index arithmetic, for host and device.

#include <algorithm>
#include <cstdint>

#include "host_device.h"
#include "keel/activations.h"

namespace keel::cuda {

inline constexpr int kSlots = 64;         // channels of a slab
inline constexpr int kPack = 4;           // numbers that are read together from shared memory
inline constexpr int kLongestTile = 128;  // samples

template <typename Integer>
constexpr KEEL_HOST_DEVICE Integer pieces(Integer count, Integer size) {
  return (count + size - 1) / size;
}

/// The fewest blocks, of at most `most`, whose `teams` teams each are done with as many tiles each as
/// they would be with `most`. What is left of the chip is the next kernel's, which may start early.
inline std::int64_t evenly(std::int64_t tiles, std::int64_t most, std::int64_t teams) {
  const std::int64_t rounds = std::max<std::int64_t>(1, pieces(tiles, most * teams));
  return std::max<std::int64_t>(1, pieces(tiles, rounds * teams));
}

/// Groups of at most 64 channels fill a slab as far as whole groups fit, each padded to `multiple`
/// slots, so that no pack is shared by two groups. A larger group takes several slabs, its parts.
struct Slabs {
  int channels = 0;
  int group_size = 0;
  int groups = 0;
  int padded = 0;           ///< slots of a group
  int groups_per_slab = 0;  ///< and never more than there are
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

  /// The channel in a slot of a slab, or -1: the slot is padding and holds zeros.
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

  /// Whether channels can be moved `width` at a time: slots and channels run alike, every slab starts
  /// at a multiple of `width` and ends at one.
  bool even(int width) const {
    if (channels % width != 0) return false;
    if (parts > 1) return group_size % width == 0;
    return padded == group_size && (count == 1 || groups_per_slab * group_size % width == 0);
  }
};

/// Where the samples lie, in tiles of at most kLongestTile of them.
struct SampleLayout {
  std::int64_t channels = 0;
  std::int64_t positions = 1;
  std::int64_t samples = 0;
  bool channels_last = false;    ///< or one position only, which is the same
  std::uint32_t reciprocal = 0;  ///< of positions where a tile can hold several images

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

  /// Of the sample `local` (less than kLongestTile) after the start.
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

/// Sixteen bytes of a tile: V neighbours in memory from here on. A warp takes 8 neighbouring units (128
/// bytes, or 64 where that is all) at each of four places, which leaves no bank conflict on the way into
/// a tile that is transposed.
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

/// A tile in shared memory: rows of COLUMNS numbers, their packs permuted from row to row so that columns
/// can be written, and rows read, without bank conflicts. Four rows 4q ... 4q+3 are permuted alike. With
/// PAIRED, the two packs of eight neighbours lie half a row apart: a thread that reads eight reads one pack
/// among its neighbours' and then the other.
template <int COLUMNS, bool PAIRED>
struct TilePlaces {
  static constexpr int kColumns = COLUMNS;

  static KEEL_HOST_DEVICE int turn(int row) { return (row >> 2 ^ row >> 5) & 15; }
  static KEEL_HOST_DEVICE int arranged(int pack) {
    static_assert(!PAIRED || COLUMNS == 64);
    return PAIRED ? pack >> 1 | (pack & 1) << 3 : pack;
  }
  /// The first of a pack's numbers.
  static KEEL_HOST_DEVICE int pack(int row, int pack) {
    return row * COLUMNS + (arranged(pack) ^ turn(row)) * kPack;
  }
  static KEEL_HOST_DEVICE int number(int row, int column) {
    return pack(row, column / kPack) + column % kPack;
  }
};

/// The place of `index` in the rows of a lower triangle.
struct Cell {
  int row, column;
};
inline KEEL_HOST_DEVICE Cell cell_of_triangle(int index) {
  int row = 0;
  while ((row + 1) * (row + 2) / 2 <= index) ++row;
  return {row, index - row * (row + 1) / 2};
}

}  // namespace keel::cuda
