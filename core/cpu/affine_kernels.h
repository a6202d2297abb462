#pragma once

// out = bias + matrix x on channel-major panels, for one input or the sum over two.

#include <limits>

#include "activation_tiles.h"
#include "affine_by_sample.h"
#include "scratch_gap.h"
#include "tile_sizes.h"

namespace keel::cpu::KEEL_ISA {

template <typename A>
inline constexpr int kPanel = kTileVectors* kLanes<A>;

inline constexpr std::int64_t kAffineTile = 128;  // samples, a whole number of panels

/// The addresses that the next tile reads and writes in the same channels, to be prefetched during
/// this tile's product.
struct NextTile {
  int count = 0;
  const char* from[3] = {};
  std::int64_t stride = 0;  ///< bytes from channel to channel

  template <typename T>
  void add(const Columns<T>& x, std::int64_t channel, std::int64_t sample) {
    const Place place = place_of(x, sample);
    from[count++] = reinterpret_cast<const char*>(x.data + place.entry + place.position +
                                                  channel * x.channel_stride);
    stride = x.channel_stride * std::int64_t(sizeof(T));
  }

  /// Prefetches `bytes` bytes of each of `channels` channels, starting at channel `first`.
  void fetch(std::int64_t first, int channels, int bytes) const {
    for (int i = 0; i < count; ++i)
      for (int c = 0; c < channels; ++c)
        for (int line = 0; line < bytes; line += 64)
          prefetch(from[i] + (first + c) * stride + line);
  }
};

template <typename A, int ROWS>
inline void affine_tile(int inputs, std::int64_t depth, const A* matrix, const A* const* panel,
                        const A* bias, A least, A* out, std::int64_t out_stride) {
  Vec<A> sum[ROWS][kTileVectors];
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) sum[r][v] = broadcast(bias[r]);
  const std::int64_t matrix_stride = inputs * depth;
  for (int input = 0; input < inputs; ++input, matrix += depth) {
    const A* column = panel[input];
    for (std::int64_t k = 0; k < depth; ++k, column += kPanel<A>) {
      const auto* samples = reinterpret_cast<const Vec<A>*>(column);
#pragma GCC unroll 16
      for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v)
          sum[r][v] += matrix[r * matrix_stride + k] * samples[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v)
      store(out + r * out_stride + v * kLanes<A>, sum[r][v] < least ? broadcast(least) : sum[r][v]);
}

template <typename A, int ROWS = tile_rows(kTileVectors)>
inline void affine_rows(std::int64_t rows, int inputs, std::int64_t depth, const A* matrix,
                        const A* const* panel, const A* bias, A least, A* out,
                        std::int64_t out_stride, const NextTile& next, std::int64_t channel,
                        int next_bytes) {
  for (; rows >= ROWS; rows -= ROWS, channel += ROWS) {
    next.fetch(channel, ROWS, next_bytes);
    affine_tile<A, ROWS>(inputs, depth, matrix, panel, bias, least, out, out_stride);
    matrix += std::int64_t{ROWS} * inputs * depth;
    bias += ROWS;
    out += ROWS * out_stride;
  }
  if constexpr (ROWS > 1)
    affine_rows<A, (ROWS > 4 ? 4 : ROWS / 2)>(rows, inputs, depth, matrix, panel, bias, least, out,
                                              out_stride, next, channel, next_bytes);
}

/// The size of one tile, plus one vector because unpacking reads whole vectors.
template <typename A>
constexpr std::int64_t affine_tile_size(std::int64_t width) {
  return width * kAffineTile + kLanes<A>;
}

template <typename T>
std::int64_t affine_scratch(int tiles, std::int64_t width) {
  using A = Accumulator<T>;
  return tiles * with_gap<A>(affine_tile_size<A>(width));
}

template <typename T>
void affine(const AffineTask<T>& task, std::int64_t channel, std::int64_t width, std::int64_t first,
            std::int64_t count, Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  if (task.by_sample != nullptr) return affine_by_sample(task, channel, first, count, scratch);
  constexpr std::int64_t panel_samples = kPanel<A>;
  static_assert(kAffineTile % panel_samples == 0);
  A* tile[2];
  for (int input = 0; input < task.inputs; ++input) {
    tile[input] = take(scratch, affine_tile_size<A>(width));
    pack_channel_major<panel_samples, T>(task.input[input], task.center[input], channel, width,
                                         first, count, tile[input]);
  }
  if (task.gate.data != nullptr) {
    A* const gate = take(scratch, affine_tile_size<A>(width));
    pack_channel_major<panel_samples, T>(task.gate, task.center[0], channel, width, first, count,
                                         gate);
    apply_gate(gate, (count + panel_samples - 1) / panel_samples * panel_samples * width, tile[0]);
  }
  A* const out = take(scratch, affine_tile_size<A>(width));
  const std::int64_t depth = task.group_size;
  const bool adds = task.residual.data != nullptr;
  const A least = adds ? -std::numeric_limits<A>::infinity() : task.least;
  // If the samples of a channel are one contiguous run, write the products there directly.
  A* to = out;
  std::int64_t to_stride = kAffineTile;
  if constexpr (std::is_same_v<T, A>)
    if (const Place place = place_of(task.output, first);
        task.output.channel_stride != 1 && !adds && count % panel_samples == 0 &&
        place.position + count <= task.output.positions) {
      to = task.output.data + place.entry + place.position + channel * task.output.channel_stride;
      to_stride = task.output.channel_stride;
    }
  for (std::int64_t k = 0; k < count; k += panel_samples) {
    NextTile next;
    if (task.output.channel_stride != 1 && task.output.positions >= kAffineTile) {
      const std::int64_t later = first + k + kAffineTile;
      for (int input = 0; input < task.inputs; ++input) next.add(task.input[input], channel, later);
      next.add(task.output, channel, later);
    }
    for (std::int64_t c = 0; c < width; c += depth) {
      const A* panel[2];
      for (int input = 0; input < task.inputs; ++input)
        panel[input] = tile[input] + k * width + c * panel_samples;
      affine_rows<A>(depth, task.inputs, depth, task.matrix + (channel + c) * task.inputs * depth,
                     panel, task.bias + channel + c, least, to + c * to_stride + k, to_stride, next,
                     c, int(panel_samples * sizeof(T)));
    }
  }
  if (to != out) return;
  if (adds) {
    A* const residual = take(scratch, affine_tile_size<A>(width));
    pack_channel_major<kAffineTile, T>(task.residual, task.zeros, channel, width, first, count,
                                       residual);
    add_residual(residual, width * kAffineTile, task.least, out);
  }
  unpack_channel_major<T>(task.output, channel, width, first, count, out, kAffineTile);
}

}  // namespace keel::cpu::KEEL_ISA
