#pragma once

// Sums of products over samples: out = left^T right on sample-major tiles, accumulated in float64.

#include "activation_tiles.h"
#include "prefetcher.h"
#include "scratch_gap.h"
#include "tile_sizes.h"

namespace keel::cpu::KEEL_ISA {

inline constexpr std::int64_t kMomentsTile = 256;  // samples summed in the accumulator's own type

/// Samples that are packed and multiplied at a time, few enough to fit into the L1 cache. Where the
/// samples of a channel are contiguous, short runs are not split further, and narrow blocks do not
/// profit.
inline constexpr std::int64_t kGramSamples = 64;
template <typename T>
inline bool cut_small(const Columns<T>& x, std::int64_t width) {
  return x.channel_stride == 1 || (x.positions >= kMomentsTile && width >= kGramSamples);
}

template <typename A>
inline bool is_finite(A x) {
  return x - x == 0;
}

/// sum left right over `count` samples, in float64. For sums that overflow in float32 although
/// their mean need not. The result is still not finite if a sample is NaN or infinite.
template <typename A>
inline double sum_in_double(std::int64_t count, const A* left, std::int64_t left_stride,
                            const A* right, std::int64_t right_stride) {
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k)
    sum += double(left[k * left_stride]) * double(right[k * right_stride]);
  return sum;
}

/// The product of one tile. It is added to `out` or overwrites it.
template <typename A>
struct Gram {
  std::int64_t count;
  const A* left;
  std::int64_t left_stride;
  const A* right;
  std::int64_t right_stride;
  A* out;
  std::int64_t out_stride;
  bool add;

  Gram at(std::int64_t row, std::int64_t column) const {
    Gram part = *this;
    part.left += row;
    part.right += column;
    part.out += row * out_stride + column;
    return part;
  }
};

template <typename A, int ROWS, int VECTORS>
inline void gram_tile(const Gram<A>& gram, Prefetcher& prefetcher) {
  Vec<A> sum[ROWS][VECTORS];
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v)
      sum[r][v] = gram.add ? load(gram.out + r * gram.out_stride + v * kLanes<A>) : Vec<A>{};
  const char *const one = prefetcher.next(), *const other = prefetcher.next();
  const A *left = gram.left, *right = gram.right;
  for (std::int64_t k = 0, ahead = 0; k < gram.count; ++k, ahead += prefetcher.stride) {
    prefetch(one + ahead);
    prefetch(other + ahead);
    Vec<A> column[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) column[v] = load(right + v * kLanes<A>);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) sum[r][v] += left[r] * column[v];
    left += gram.left_stride;
    right += gram.right_stride;
  }
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v)
      store(gram.out + r * gram.out_stride + v * kLanes<A>, sum[r][v]);
}

/// `rows` rows of out by VECTORS vectors, in tiles of ROWS rows and smaller ones at the end.
template <typename A, int VECTORS, int ROWS>
inline void gram_rows(std::int64_t rows, Gram<A> gram, Prefetcher& prefetcher) {
  for (; rows >= ROWS; rows -= ROWS, gram = gram.at(ROWS, 0))
    gram_tile<A, ROWS, VECTORS>(gram, prefetcher);
  if constexpr (ROWS > 1) {
    constexpr int next = ROWS > 8 ? 8 : ROWS > 4 ? 4 : ROWS / 2;
    gram_rows<A, VECTORS, next>(rows, gram, prefetcher);
  }
}

template <typename A, int VECTORS = kTileVectors>
inline void gram_columns(std::int64_t vectors, std::int64_t rows, Gram<A> gram,
                         Prefetcher& prefetcher) {
  for (; vectors >= VECTORS; vectors -= VECTORS, gram = gram.at(0, VECTORS * kLanes<A>))
    gram_rows<A, VECTORS, tile_rows(VECTORS)>(rows, gram, prefetcher);
  if constexpr (VECTORS > 1) gram_columns<A, VECTORS - 1>(vectors, rows, gram, prefetcher);
}

/// total += the sum of `count` rows of `vectors` vectors.
template <typename A, int VECTORS = 4>
inline void add_rows(std::int64_t vectors, std::int64_t count, const A* rows, std::int64_t stride,
                     A* total) {
  constexpr std::int64_t lanes = kLanes<A>;
  for (; vectors >= VECTORS;
       vectors -= VECTORS, rows += VECTORS * lanes, total += VECTORS * lanes) {
    Vec<A> sum[VECTORS];
    for (int v = 0; v < VECTORS; ++v) sum[v] = load(total + v * lanes);
    for (std::int64_t k = 0; k < count; ++k)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) sum[v] += load(rows + k * stride + v * lanes);
    for (int v = 0; v < VECTORS; ++v) store(total + v * lanes, sum[v]);
  }
  if constexpr (VECTORS > 1) add_rows<A, VECTORS / 2>(vectors, count, rows, stride, total);
}

template <typename T>
std::int64_t moments_scratch(const MomentBlock& block) {
  using A = Accumulator<T>;
  const std::int64_t left = whole_vectors<A>(block.left_width);
  const std::int64_t right = whole_vectors<A>(block.right_width);
  return with_gap<A>(kMomentsTile * left) * (block.gated ? 2 : 1) +
         (block.symmetric ? 0 : with_gap<A>(kMomentsTile * right)) + with_gap<A>(left * right) +
         with_gap<A>(left);
}

template <typename T>
void moments(const MomentsTask<T>& task, const MomentBlock& block, std::int64_t first,
             std::int64_t count, double* sum, double* second, Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  constexpr std::int64_t lanes = kLanes<A>;
  const std::int64_t left_stride = whole_vectors<A>(block.left_width);
  const std::int64_t right_stride = whole_vectors<A>(block.right_width);
  A* const left_tile = take(scratch, kMomentsTile * left_stride);
  A* const right = block.symmetric ? left_tile : take(scratch, kMomentsTile * right_stride);
  A* const out = take(scratch, left_stride * right_stride);
  A* const total = take(scratch, left_stride);
  A* const gate = block.gated ? take(scratch, kMomentsTile * left_stride) : nullptr;
  for (std::int64_t c = 0; c < left_stride; ++c) total[c] = 0;

  // The left factor is only broadcast, so it can be read in place.
  Rows<A> left{left_tile, left_stride};
  if (task.left_is_centred && !block.gated && block.left_width == left_stride)
    if (const Rows<A> there = rows_in_memory<T>(task.left, block.left, first);
        there.data != nullptr)
      left = there;
  const bool packs_left = left.data == left_tile;

  const bool small = cut_small(task.left, block.left_width);
  const std::int64_t step = small ? kGramSamples : kMomentsTile;
  for (std::int64_t done = 0; done < count; done += step) {
    const std::int64_t samples = smaller(step, count - done), from = first + done;
    A *const left_packed = left_tile + done * left_stride, *const right_rows =
                                                               right + done * right_stride;
    if (packs_left)
      pack_sample_major<T>(task.left, task.left_center, block.left, block.left_width, from, samples,
                           left_packed, left_stride);
    Prefetcher prefetcher(task.left, block.left, block.left_width, from + samples, left_tile,
                          small);
    if (block.gated) {
      pack_sample_major<T>(task.left_gate, task.left_center, block.left, block.left_width, from,
                           samples, gate, left_stride);
      apply_gate(gate, samples * left_stride, left_packed);
      prefetcher.add(task.left_gate, block.left, from + samples);
    }
    if (!block.symmetric) {
      pack_sample_major<T>(task.right, task.right_center, block.right, block.right_width, from,
                           samples, right_rows, right_stride);
      prefetcher.add(task.right, block.right, from + samples);
    }
    const A* const left_rows = left.data + done * left.stride;
    if (sum != nullptr) add_rows<A>(left_stride / lanes, samples, left_rows, left.stride, total);
    const Gram<A> gram{samples,      left_rows, left.stride,  right_rows,
                       right_stride, out,       right_stride, done > 0};
    if (block.symmetric) {
      for (std::int64_t r = 0; r < block.left_width; r += lanes)
        gram_columns<A>(r / lanes + 1, smaller(lanes, block.left_width - r), gram.at(r, 0),
                        prefetcher);
    } else {
      gram_columns<A>(right_stride / lanes, block.left_width, gram, prefetcher);
    }
  }

  if (sum != nullptr)
    for (std::int64_t c = 0; c < block.left_width; ++c) {
      const A one = 1;
      sum[block.left + c] += is_finite(total[c])
                                 ? double(total[c])
                                 : sum_in_double(count, left.data + c, left.stride, &one, 0);
    }

  bool finite = true;
  if constexpr (!std::is_same_v<A, double>) {  // for double, summing again would not help
    Vec<A> not_finite = {};                    // becomes NaN if an entry is not finite
    for (std::int64_t r = 0; r < block.left_width; ++r) {
      Vec<A> row = {};  // one chain of additions per row, so that rows overlap
      for (std::int64_t c = 0; c < (block.symmetric ? r + 1 : right_stride); c += lanes) {
        const Vec<A> some = load(out + r * right_stride + c);
        row += some - some;
      }
      not_finite += row;
    }
    finite = sum_lanes<A>(not_finite) == 0;
  }

  // If the block holds several small groups, keep only the products within each group.
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
                     : sum_in_double(count, left.data + r, left.stride, columns + c, right_stride);
    }
  }
}

}  // namespace keel::cpu::KEEL_ISA
