#pragma once

// out = bias + matrix x where a sample's channels are contiguous. A vector holds channels of one
// sample, so the activations need no transposition. The matrices are transposed instead
// (AffineTask::by_sample).

#include "activation_tiles.h"
#include "scratch_gap.h"
#include "tile_sizes.h"

namespace keel::cpu::KEEL_ISA {

/// Samples that are centred at a time. Together with the matrix they fit into the L1 cache.
inline constexpr std::int64_t kSampleTile = 48;

/// The epilogue for one vector of the output: adds the residual, clamps and stores.
template <typename T, typename A = Accumulator<T>>
inline void finish(const AffineTask<T>& task, std::int64_t offset, Vec<A> sum, std::int64_t width) {
  if (task.residual.data != nullptr)
    sum += load_within(task.residual.data + offset, task.residual.end);
  store_some(task.output.data + offset, sum < task.least ? broadcast(task.least) : sum, width);
}

/// Prefetches as much as one tile reads or writes.
template <int ROWS, int WIDTH, typename T>
inline void prefetch_tile(const T* first, std::int64_t stride) {
  constexpr int line = 64 / int(sizeof(T));
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < WIDTH; c += line) prefetch(first + r * stride + c);
}

/// Computes a tile of ROWS samples by VECTORS vectors of channels. `offset` is the position of its
/// first element in the activations; `width` channels of the group are left.
template <typename T, int ROWS, int VECTORS, typename A = Accumulator<T>>
inline void affine_samples(const AffineTask<T>& task, const Rows<A>* tile, const A* column,
                           std::int64_t column_stride, const A* bias, std::int64_t offset,
                           std::int64_t width) {
  constexpr std::int64_t lanes = kLanes<A>;
  const std::int64_t sample_stride = task.output.sample_stride;
  const std::int64_t later = offset + kSampleTile * sample_stride;
  prefetch_tile<ROWS, VECTORS * lanes>(task.output.data + later, sample_stride);
  for (int input = 0; input < task.inputs; ++input)
    prefetch_tile<ROWS, VECTORS * lanes>(task.input[input].data + later, sample_stride);
  Vec<A> sum[ROWS][VECTORS];
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) sum[r][v] = load(bias + v * lanes);
  for (int input = 0; input < task.inputs; ++input) {
    const auto [x, stride] = tile[input];
    for (std::int64_t k = 0; k < task.group_size; ++k, column += column_stride) {
      Vec<A> coefficient[VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) coefficient[v] = load(column + v * lanes);
#pragma GCC unroll 16
      for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) sum[r][v] += x[r * stride + k] * coefficient[v];
    }
  }
  if (width >= VECTORS * lanes && task.residual.data == nullptr) {
    T* const to = task.output.data + offset;
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v)
        store(to + r * sample_stride + v * lanes,
              sum[r][v] < task.least ? broadcast(task.least) : sum[r][v]);
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v)
      finish(task, offset + r * sample_stride + v * lanes, sum[r][v], width - v * lanes);
}

/// `count` samples, in tiles of ROWS rows and smaller ones at the end.
template <typename T, int VECTORS, int ROWS, typename A = Accumulator<T>>
inline void affine_sample_rows(const AffineTask<T>& task, std::int64_t count, const Rows<A>* tiles,
                               const A* column, std::int64_t column_stride, const A* bias,
                               std::int64_t offset, std::int64_t width) {
  Rows<A> tile[2] = {tiles[0], tiles[1]};
  for (; count >= ROWS; count -= ROWS) {
    affine_samples<T, ROWS, VECTORS>(task, tile, column, column_stride, bias, offset, width);
    for (int input = 0; input < task.inputs; ++input) tile[input].data += ROWS * tile[input].stride;
    offset += ROWS * task.output.sample_stride;
  }
  if constexpr (ROWS > 1)
    affine_sample_rows<T, VECTORS, (ROWS > 4 ? 4 : ROWS / 2)>(task, count, tile, column,
                                                              column_stride, bias, offset, width);
}

template <typename T, int VECTORS = kTileVectors, typename A = Accumulator<T>>
inline void affine_sample_columns(const AffineTask<T>& task, std::int64_t vectors,
                                  std::int64_t count, const Rows<A>* tile, const A* column,
                                  std::int64_t column_stride, const A* bias, std::int64_t offset,
                                  std::int64_t width) {
  constexpr std::int64_t step = VECTORS * kLanes<A>;
  for (; vectors >= VECTORS; vectors -= VECTORS) {
    affine_sample_rows<T, VECTORS, (VECTORS == 1 && kManyRegisters ? 12 : tile_rows(VECTORS))>(
        task, count, tile, column, column_stride, bias, offset, width);
    column += step;
    bias += step;
    offset += step;
    width -= step;
  }
  if constexpr (VECTORS > 1)
    affine_sample_columns<T, VECTORS - 1>(task, vectors, count, tile, column, column_stride, bias,
                                          offset, width);
}

/// For groups of at least one vector. `channel` is the first channel of a group.
template <typename T>
void affine_by_sample(const AffineTask<T>& task, std::int64_t channel, std::int64_t first,
                      std::int64_t count, Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  const std::int64_t d = task.group_size, stride = whole_vectors<A>(d);
  A* packed[2];
  for (A*& tile : packed) tile = take(scratch, kSampleTile * stride);
  A* const gate = task.gate.data != nullptr ? take(scratch, kSampleTile * stride) : nullptr;
  const A* const columns = task.by_sample + channel * task.inputs * stride;
  for (std::int64_t last = first + count; first < last; first += kSampleTile) {
    const std::int64_t samples = smaller(kSampleTile, last - first);
    Rows<A> tile[2] = {};
    if (task.first_is_centred && gate == nullptr)
      tile[0] = rows_in_memory<T>(task.input[0], channel, first);
    for (int input = 0; input < task.inputs; ++input)
      if (tile[input].data == nullptr) {
        pack_sample_major<T>(task.input[input], task.center[input], channel, d, first, samples,
                             packed[input], stride);
        tile[input] = {packed[input], stride};
      }
    if (gate != nullptr) {
      pack_sample_major<T>(task.gate, task.center[0], channel, d, first, samples, gate, stride);
      apply_gate(gate, samples * stride, packed[0]);
    }
    affine_sample_columns<T>(task, stride / kLanes<A>, samples, tile, columns, stride,
                             task.bias + channel, first * task.output.sample_stride + channel, d);
  }
}

}  // namespace keel::cpu::KEEL_ISA
