#pragma once

// Packs small tiles of activations into scratch memory, in the accumulator's type: sample-major (a
// row of channels per sample) for moments, channel-major for affine.

#include <type_traits>

#include "activation_kernels.h"
#include "elements.h"
#include "transpose.h"

namespace keel::cpu::KEEL_ISA {

inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

template <typename A>
constexpr std::int64_t whole_vectors(std::int64_t count) {
  return (count + kLanes<A> - 1) / kLanes<A> * kLanes<A>;
}

/// The position of a sample: its batch entry and its position therein.
struct Place {
  std::int64_t entry;  ///< offset of the batch entry
  std::int64_t position;
};

template <typename T>
inline Place place_of(const Columns<T>& x, std::int64_t sample) {
  const std::int64_t entry = sample / x.positions;
  return {entry * x.batch_stride, sample - entry * x.positions};
}

/// Calls body(offset, length, address of the first element) for each run of samples within one
/// batch entry, in order.
template <typename T, typename Body>
inline void for_each_run(const Columns<T>& x, std::int64_t channel, Place place, std::int64_t count,
                         const Body& body) {
  T* entry = x.data + place.entry + channel * x.channel_stride;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t length = smaller(x.positions - place.position, count - done);
    body(done, length, entry + place.position * x.sample_stride);
    done += length;
    place.position = 0;
    entry += x.batch_stride;
  }
}

/// Prefetches for the next tile. The hardware prefetcher does not predict the stride between rows
/// of a part of the channels.
inline void prefetch(const void* address) { __builtin_prefetch(address, 0, 2); }

/// The transpose of `count` rows starting at `from`, `stride` apart. The last row is repeated to
/// fill the block.
template <typename T>
inline void load_transposed(Vec<Accumulator<T>> (&rows)[kLanes<Accumulator<T>>], const T* from,
                            std::int64_t stride, std::int64_t count, const T* end) {
  constexpr int lanes = kLanes<Accumulator<T>>;
  if (count == lanes && from + (lanes - 1) * stride + lanes <= end) [[likely]] {
#pragma GCC unroll 16
    for (int r = 0; r < lanes; ++r) rows[r] = load(from + r * stride);
  } else {
    for (int r = 0; r < lanes; ++r)
      rows[r] = load_within(from + smaller(r, count - 1) * stride, end);
  }
  transpose<Accumulator<T>>(rows);
}

/// tile[k * stride + c] = x[first + k][channel + c] - center[channel + c]. Entries beyond `width`,
/// up to the next whole vector, are unspecified.
template <typename T, typename A = Accumulator<T>>
void pack_sample_major(const Columns<const T>& x, const A* center, std::int64_t channel,
                       std::int64_t width, std::int64_t first, std::int64_t count, A* tile,
                       std::int64_t stride) {
  constexpr std::int64_t lanes = kLanes<A>;
  if (x.channel_stride == 1) {
    const T* from = x.data + first * x.sample_stride + channel;
    center += channel;
    // All rows but the last ones in memory can be read in whole vectors.
    const std::int64_t room = (x.end - from - whole_vectors<A>(width)) / x.sample_stride + 1;
    const std::int64_t inside = x.end - from < whole_vectors<A>(width) ? 0 : smaller(count, room);
    std::int64_t k = 0;
    for (; k < inside; ++k, from += x.sample_stride, tile += stride)
      for (std::int64_t c = 0; c < width; c += lanes)
        store(tile + c, load(from + c) - load(center + c));
    for (; k < count; ++k, from += x.sample_stride, tile += stride)
      for (std::int64_t c = 0; c < width; c += lanes)
        store(tile + c, load_within(from + c, x.end) - load(center + c));
    return;
  }
  const Place place = place_of(x, first);
  for (std::int64_t c = 0; c < width; c += lanes) {
    const Vec<A> shift = load(center + channel + c);
    for_each_run(
        x, channel + c, place, count, [&](std::int64_t done, std::int64_t length, const T* from) {
          for (std::int64_t k = 0; k < length; k += lanes) {
            Vec<A> rows[lanes];
            load_transposed(rows, from + k, x.channel_stride, smaller(lanes, width - c), x.end);
            A* to = tile + (done + k) * stride + c;
            const std::int64_t samples = smaller(lanes, length - k);
            for (std::int64_t s = 0; s < samples; ++s) store(to + s * stride, rows[s] - shift);
          }
        });
  }
}

/// The rows of a tile, one per sample. They may be packed, or be the activations themselves if
/// those can be used as they are.
template <typename A>
struct Rows {
  const A* data;
  std::int64_t stride;
};

/// The samples in place, if a sample's channels are contiguous and have the accumulator's type.
template <typename T>
inline Rows<Accumulator<T>> rows_in_memory(const Columns<const T>& x, std::int64_t channel,
                                           std::int64_t first) {
  if constexpr (std::is_same_v<T, Accumulator<T>>)
    if (x.channel_stride == 1) return {x.data + first * x.sample_stride + channel, x.sample_stride};
  return {nullptr, 0};
}

/// Zeroes the entries whose gate is zero or less. `gate` is packed like `tile`; both hold whole
/// vectors.
template <typename A>
void apply_gate(const A* gate, std::int64_t count, A* tile) {
  for (std::int64_t k = 0; k < count; k += kLanes<A>)
    store(tile + k, load(gate + k) <= 0 ? Vec<A>{} : load(tile + k));
}

/// tile = max(tile + residual, least). Both hold whole vectors.
template <typename A>
void add_residual(const A* residual, std::int64_t count, A least, A* tile) {
  for (std::int64_t k = 0; k < count; k += kLanes<A>) {
    const Vec<A> sum = load(tile + k) + load(residual + k);
    store(tile + k, sum < least ? broadcast(least) : sum);
  }
}

/// Channel-major tiles are cut into panels of PANEL samples: element (c, k) is at (k / PANEL *
/// width + c) * PANEL + k % PANEL. Samples beyond `count`, up to the next whole panel, are
/// unspecified.
template <int PANEL, typename T, typename A = Accumulator<T>>
void pack_channel_major(const Columns<const T>& x, const A* center, std::int64_t channel,
                        std::int64_t width, std::int64_t first, std::int64_t count, A* tile) {
  constexpr std::int64_t lanes = kLanes<A>;
  if (x.channel_stride == 1) {
    for (std::int64_t c = 0; c < width; c += lanes) {
      const Vec<A> shift = load(center + channel + c);
      const std::int64_t channels = smaller(lanes, width - c);
      for (std::int64_t k = 0; k < count; k += lanes) {
        Vec<A> rows[lanes];
        const T* from = x.data + (first + k) * x.sample_stride + channel + c;
        for (int r = 0; r < lanes; ++r) prefetch(from + (r + count) * x.sample_stride);
        load_transposed(rows, from, x.sample_stride, smaller(lanes, count - k), x.end);
        A* to = tile + (k / PANEL * width + c) * PANEL + k % PANEL;
        for (std::int64_t r = 0; r < channels; ++r) store(to + r * PANEL, rows[r] - shift[r]);
      }
    }
    return;
  }
  const Place place = place_of(x, first);
  const bool one_run = count % PANEL == 0 && place.position + count <= x.positions;
  for (std::int64_t c = 0; c < width; ++c) {
    const Vec<A> shift = broadcast(center[channel + c]);
    if (one_run) {
      const T* const from =
          x.data + place.entry + place.position + (channel + c) * x.channel_stride;
      for (std::int64_t k = 0; k < count; k += PANEL)
#pragma GCC unroll 16
        for (int s = 0; s < PANEL; s += int(lanes))
          store(tile + (k / PANEL * width + c) * PANEL + s, load(from + k + s) - shift);
      continue;
    }
    for_each_run(x, channel + c, place, count,
                 [&](std::int64_t done, std::int64_t length, const T* from) {
                   for (std::int64_t s = 0; s < length;) {
                     // A whole vector may write past the end of its run. The next run overwrites
                     // that.
                     const std::int64_t k = done + s, room = PANEL - k % PANEL;
                     store_some(tile + (k / PANEL * width + c) * PANEL + k % PANEL,
                                load_within(from + s, x.end) - shift, room);
                     s += smaller(lanes, room);
                   }
                 });
  }
}

/// output[first + k][channel + c] = tile[c * stride + k].
template <typename T, typename A = Accumulator<T>>
void unpack_channel_major(const Columns<T>& output, std::int64_t channel, std::int64_t width,
                          std::int64_t first, std::int64_t count, const A* tile,
                          std::int64_t stride) {
  constexpr std::int64_t lanes = kLanes<A>;
  if (output.channel_stride != 1) {
    const Place place = place_of(output, first);
    for (std::int64_t c = 0; c < width; ++c)
      for_each_run(output, channel + c, place, count,
                   [&](std::int64_t done, std::int64_t length, T* to) {
                     const A* from = tile + c * stride + done;
                     for (std::int64_t k = 0; k < length; k += lanes)
                       store_some(to + k, load(from + k), length - k);
                   });
    return;
  }
  for (std::int64_t c = 0; c < width; c += lanes)
    for (std::int64_t k = 0; k < count; k += lanes) {
      Vec<A> rows[lanes];
      const A* end = tile + width * stride;
      load_transposed(rows, tile + c * stride + k, stride, smaller(lanes, width - c), end);
      T* to = output.data + (first + k) * output.sample_stride + channel + c;
      const std::int64_t samples = smaller(lanes, count - k);
      for (std::int64_t s = 0; s < samples; ++s)
        store_some(to + s * output.sample_stride, rows[s], width - c);
    }
}

}  // namespace keel::cpu::KEEL_ISA
