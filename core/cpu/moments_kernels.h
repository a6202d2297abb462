#pragma once

// Sums of products over samples: out = left^T right on sample-major tiles, then added up in
// float64.

#include "activation_tiles.h"
#include "scratch_gap.h"
#include "tile_sizes.h"

namespace keel::cpu::KEEL_ISA {

inline constexpr std::int64_t kMomentsTile = 256;  // samples summed in the accumulator's own type

template <typename A>
inline bool is_finite(A x) {
  return x - x == 0;
}

/// sum left right over `count` samples, in float64: for sums that overflow in float32 though their mean
/// need not. With NaN or infinity among the samples it is not finite either.
template <typename A>
inline double sum_in_double(std::int64_t count, const A* left, std::int64_t left_stride,
                            const A* right, std::int64_t right_stride) {
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k)
    sum += double(left[k * left_stride]) * double(right[k * right_stride]);
  return sum;
}

template <typename A, int ROWS, int VECTORS>
inline void gram_tile(std::int64_t count, const A* left, std::int64_t left_stride, const A* right,
                      std::int64_t right_stride, A* out, std::int64_t out_stride) {
  Vec<A> sum[ROWS][VECTORS] = {};
  for (std::int64_t k = 0; k < count; ++k, left += left_stride, right += right_stride) {
    const auto* columns = reinterpret_cast<const Vec<A>*>(right);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) sum[r][v] += left[r] * columns[v];
  }
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v)
      reinterpret_cast<Vec<A>*>(out + r * out_stride)[v] = sum[r][v];
}

/// `rows` rows of out by VECTORS vectors, in tiles of ROWS rows and ever smaller ones at the end.
template <typename A, int VECTORS, int ROWS>
inline void gram_rows(std::int64_t rows, std::int64_t count, const A* left,
                      std::int64_t left_stride, const A* right, std::int64_t right_stride, A* out,
                      std::int64_t out_stride) {
  for (; rows >= ROWS; rows -= ROWS, left += ROWS, out += ROWS * out_stride)
    gram_tile<A, ROWS, VECTORS>(count, left, left_stride, right, right_stride, out, out_stride);
  if constexpr (ROWS > 1) {
    constexpr int next = ROWS > 8 ? 8 : ROWS > 4 ? 4 : ROWS / 2;
    gram_rows<A, VECTORS, next>(rows, count, left, left_stride, right, right_stride, out,
                                out_stride);
  }
}

template <typename A, int VECTORS = kTileVectors>
inline void gram_columns(std::int64_t vectors, std::int64_t rows, std::int64_t count, const A* left,
                         std::int64_t left_stride, const A* right, std::int64_t right_stride,
                         A* out, std::int64_t out_stride) {
  for (; vectors >= VECTORS; vectors -= VECTORS) {
    gram_rows<A, VECTORS, tile_rows(VECTORS)>(rows, count, left, left_stride, right, right_stride,
                                              out, out_stride);
    right += VECTORS * kLanes<A>;
    out += VECTORS * kLanes<A>;
  }
  if constexpr (VECTORS > 1)
    gram_columns<A, VECTORS - 1>(vectors, rows, count, left, left_stride, right, right_stride, out,
                                 out_stride);
}

template <typename T>
std::int64_t moments_scratch(const MomentBlock& block) {
  using A = Accumulator<T>;
  const std::int64_t left = whole_vectors<A>(block.left_width);
  const std::int64_t right = whole_vectors<A>(block.right_width);
  return with_gap<A>(kMomentsTile * left) * (block.gated ? 2 : 1) +
         (block.symmetric ? 0 : with_gap<A>(kMomentsTile * right)) + with_gap<A>(left * right);
}

template <typename T>
void moments(const MomentsTask<T>& task, const MomentBlock& block, std::int64_t first,
             std::int64_t count, double* sum, double* second, Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  constexpr std::int64_t lanes = kLanes<A>;
  const std::int64_t left_stride = whole_vectors<A>(block.left_width);
  const std::int64_t right_stride = whole_vectors<A>(block.right_width);
  A* const left = take(scratch, kMomentsTile * left_stride);
  A* const right = block.symmetric ? left : take(scratch, kMomentsTile * right_stride);
  A* const out = take(scratch, left_stride * right_stride);

  pack_sample_major<T>(task.left, task.left_center, block.left, block.left_width, first, count,
                       left, left_stride);
  if (block.gated) {
    A* const gate = take(scratch, kMomentsTile * left_stride);
    pack_sample_major<T>(task.left_gate, task.left_center, block.left, block.left_width, first,
                         count, gate, left_stride);
    apply_gate(gate, count * left_stride, left);
  }
  if (!block.symmetric)
    pack_sample_major<T>(task.right, task.right_center, block.right, block.right_width, first,
                         count, right, right_stride);

  if (sum != nullptr)
    for (std::int64_t c = 0; c < block.left_width; c += lanes) {
      Vec<A> total = {};
      for (std::int64_t k = 0; k < count; ++k) total += load(left + k * left_stride + c);
      const A one = 1;
      for (std::int64_t r = 0; r < smaller(lanes, block.left_width - c); ++r)
        sum[block.left + c + r] += is_finite(total[r])
                                       ? double(total[r])
                                       : sum_in_double(count, left + c + r, left_stride, &one, 0);
    }

  if (block.symmetric) {
    for (std::int64_t r = 0; r < block.left_width; r += lanes)
      gram_columns<A>(r / lanes + 1, smaller(lanes, block.left_width - r), count, left + r,
                      left_stride, right, right_stride, out + r * right_stride, right_stride);
  } else {
    gram_columns<A>(right_stride / lanes, block.left_width, count, left, left_stride, right,
                    right_stride, out, right_stride);
  }

  bool finite = true;
  if constexpr (!std::is_same_v<A, double>) {  // a double's sum is no better the second time
    Vec<A> nothing = {};                       // what is not finite is NaN here
    for (std::int64_t r = 0; r < block.left_width; ++r) {
      Vec<A> row = {};  // a chain of additions each, so that rows overlap
      for (std::int64_t c = 0; c < (block.symmetric ? r + 1 : right_stride); c += lanes) {
        const Vec<A> some = load(out + r * right_stride + c);
        row += some - some;
      }
      nothing += row;
    }
    finite = sum_lanes<A>(nothing) == 0;
  }

  // Of several small groups in one block only the products within each group are wanted.
  for (std::int64_t r = 0; r < block.left_width; ++r) {
    const std::int64_t channel = block.left + r;
    const std::int64_t group = channel / task.group_size * task.group_size;
    const std::int64_t begin = group > block.right ? group : block.right;
    std::int64_t end = smaller(group + task.group_size, block.right + block.right_width);
    if (block.symmetric) end = smaller(end, channel + 1);
    const A* from = out + r * right_stride + (begin - block.right);
    double* to = second + channel * task.group_size + (begin - group);
    if (finite) [[likely]] {
      for (std::int64_t c = 0; c < end - begin; ++c) to[c] += double(from[c]);
    } else {
      const A* const columns = right + (begin - block.right);
      for (std::int64_t c = 0; c < end - begin; ++c)
        to[c] += is_finite(from[c])
                     ? double(from[c])
                     : sum_in_double(count, left + r, left_stride, columns + c, right_stride);
    }
  }
}

}  // namespace keel::cpu::KEEL_ISA
