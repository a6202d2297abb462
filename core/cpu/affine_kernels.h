#pragma once

// out = bias + matrix x on channel-major panels, for one input or the sum over two.

#include <limits>

#include "activation_tiles.h"
#include "scratch_gap.h"
#include "tile_sizes.h"

namespace keel::cpu::KEEL_ISA {

template <typename A>
inline constexpr int kPanel = kTileVectors* kLanes<A>;

inline constexpr std::int64_t kAffineTile = 128;  // samples, a whole number of panels

template <typename A, int ROWS>
inline void affine_tile(int inputs, std::int64_t depth, const A* matrix, const A* const* panel,
                        const A* bias, A least, A* out, std::int64_t out_stride) {
  Vec<A> sum[ROWS][kTileVectors];
  for (int r = 0; r < ROWS; ++r)
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
      reinterpret_cast<Vec<A>*>(out + r * out_stride)[v] =
          sum[r][v] < least ? broadcast(least) : sum[r][v];
}

template <typename A, int ROWS = tile_rows(kTileVectors)>
inline void affine_rows(std::int64_t rows, int inputs, std::int64_t depth, const A* matrix,
                        const A* const* panel, const A* bias, A least, A* out,
                        std::int64_t out_stride) {
  for (; rows >= ROWS; rows -= ROWS) {
    affine_tile<A, ROWS>(inputs, depth, matrix, panel, bias, least, out, out_stride);
    matrix += std::int64_t{ROWS} * inputs * depth;
    bias += ROWS;
    out += ROWS * out_stride;
  }
  if constexpr (ROWS > 1)
    affine_rows<A, (ROWS > 4 ? 4 : ROWS / 2)>(rows, inputs, depth, matrix, panel, bias, least, out,
                                              out_stride);
}

/// One tile with a vector of room, because unpacking reads whole vectors.
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
  for (std::int64_t k = 0; k < count; k += panel_samples)
    for (std::int64_t c = 0; c < width; c += depth) {
      const A* panel[2];
      for (int input = 0; input < task.inputs; ++input)
        panel[input] = tile[input] + k * width + c * panel_samples;
      affine_rows<A>(depth, task.inputs, depth, task.matrix + (channel + c) * task.inputs * depth,
                     panel, task.bias + channel + c, least, out + c * kAffineTile + k, kAffineTile);
    }
  if (adds) {
    A* const residual = take(scratch, affine_tile_size<A>(width));
    pack_channel_major<kAffineTile, T>(task.residual, task.zeros, channel, width, first, count,
                                       residual);
    add_residual(residual, width * kAffineTile, task.least, out);
  }
  unpack_channel_major<T>(task.output, channel, width, first, count, out, kAffineTile);
}

}  // namespace keel::cpu::KEEL_ISA
