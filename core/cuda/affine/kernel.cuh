#pragma once

// output = sum of coefficient (input - center) + bias, for one tile of samples of one slab of
// channels at a time. A thread computes two packs of channels by one or two packs of samples, in
// registers. The coefficients of a slab stay in shared memory. Only groups of several slabs load
// them again for each part.

#include <limits>

#include "cuda/activations/stage.cuh"
#include "cuda/affine/task.h"

namespace keel::cuda {

inline constexpr int kAffineThreads = 128;

template <typename A>
inline constexpr int kAffineSamples = 512 / int(sizeof(A));  // of a tile

template <typename T>
struct AffineTerm {
  using A = Accumulator<T>;
  Source<T> input;
  Matrices<const A> matrix;
  Coefficient coefficient = Coefficient::plain;
  const A* center = nullptr;
  Matrices<const A> covariance;  ///< about the center; null if not known
};

/// max(x, least). NaN stays NaN.
__device__ inline double at_least(double x, double least) { return x < least ? least : x; }
__device__ inline float at_least(float x, float least) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(least));
  return larger;
}

/// The value to store.
template <typename T>
__device__ T written(Accumulator<T> x, Accumulator<T> least) {
  return rounded<T>(at_least(x, least));
}

template <typename T>
struct AffineTask {
  using A = Accumulator<T>;
  AffineTerm<T> terms[2];
  int term_count = 0;
  bool inputs_ready = false;  ///< the inputs are older than the previous kernel
  A divisor = 1;
  const A* bias = nullptr;
  T* output = nullptr;
  Source<T> residual;                             ///< added to the output; no data: none
  A least = -std::numeric_limits<A>::infinity();  ///< smaller results are replaced by this
  bool output_fours = false;                      ///< four outputs can be written at a time
  SampleLayout layout;
  Slabs slabs;
  std::int64_t tiles = 0;   ///< of samples
  std::int64_t stride = 0;  ///< blocks that share a slab
  bool stays = false;       ///< tables and coefficients are loaded once, one set per term
};

/// Rows are the channels of the input, columns the channels of the output.
using CoefficientPlaces = TilePlaces<kSlots, false>;

/// Loads the coefficients of output slab `to` for input slab `from` of its group. Zero where either
/// is padding.
template <typename T>
__device__ void load_coefficients(const AffineTask<T>& task, const AffineTerm<T>& term, int to,
                                  int from, Accumulator<T>* coefficients) {
  using A = Accumulator<T>;
  const Slabs& slabs = task.slabs;
  const int rows = slabs.padded, d = slabs.group_size;
  const int first_row = slabs.parts == 1 ? 0 : from % slabs.parts * kSlots;
  // Adjacent threads read adjacent numbers.
  const bool along_rows = term.coefficient != Coefficient::transposed;
  for (int e = int(threadIdx.x); e < rows * kSlots; e += kAffineThreads) {
    const int row = along_rows ? e % rows : e / kSlots;
    const int slot = along_rows ? e / rows : e % kSlots;
    const int c = slabs.channel(to, slot), j = first_row + row;
    A value = 0;
    if (c >= 0 && j < d) {
      const A* matrix = term.matrix[c / d];
      const std::int64_t stride = term.matrix.row_stride;
      const int i = c % d;
      if (term.coefficient == Coefficient::plain) value = matrix[i * stride + j];
      if (term.coefficient == Coefficient::transposed) value = matrix[j * stride + i];
      if (term.coefficient == Coefficient::symmetric)
        value = (matrix[i * stride + j] + matrix[j * stride + i]) / task.divisor;
      if (term.coefficient == Coefficient::doubled)
        value = 2 * matrix[i * stride + j] / task.divisor;
    }
    coefficients[CoefficientPlaces::number(row, slot)] = value;
  }
}

/// JOINT: one group (or part of a group) fills the slab, so both packs of channels use the same
/// inputs.
template <typename T, bool JOINT>
struct AffineBlock {
  using A = Accumulator<T>;
  static constexpr int kSamples = kAffineSamples<A>;
  static constexpr int kSamplePacks = kSamples / kPack / 16;  // of a thread
  static constexpr int kWide = kSamplePacks * kPack;
  using Places = TilePlaces<kSamples, false>;
  using Loads = Stage<T, kAffineThreads, kSamples, 4>;
  static constexpr int kTileBytes = kSlots * kSamples * int(sizeof(A));
  static constexpr int kBytes = kTileBytes + Loads::kRawBytes;  // without the coefficients

  /// The thread's packs: channels `channel_pack` and `channel_pack` + 8, samples `sample_pack` and
  /// `sample_pack` + 16.
  int channel_pack, sample_pack;
  A at[2][kPack][kWide];

  __device__ AffineBlock() {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    sample_pack = lane % 8 + warp % 2 * 8;
    channel_pack = lane / 8 + warp / 2 * 4;
  }

  __device__ void start(const A* bias) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < kPack; ++i)
#pragma unroll
        for (int k = 0; k < kWide; ++k) at[h][i][k] = bias[(channel_pack + 8 * h) * kPack + i];
  }

  __device__ void load_samples(const A* rows, int swizzle, A (&x)[kWide]) const {
#pragma unroll
    for (int p = 0; p < kSamplePacks; ++p) {
      const auto& from =
          *reinterpret_cast<const Pack<A>*>(rows + ((sample_pack + 16 * p) ^ swizzle) * kPack);
#pragma unroll
      for (int v = 0; v < kPack; ++v) x[p * kPack + v] = from.at[v];
    }
  }

  __device__ void multiply(int h, const Pack<A>& m, const A (&x)[kWide]) {
#pragma unroll
    for (int i = 0; i < kPack; ++i)
#pragma unroll
      for (int k = 0; k < kWide; ++k) at[h][i][k] += m.at[i] * x[k];
  }

  __device__ void add(const Slabs& slabs, const A* tile, const A* coefficients) {
    if constexpr (JOINT) {
      for (int row = 0; row < slabs.padded; row += 4) {
        const int swizzle = Places::swizzle(row);
        const A* m = coefficients + row * kSlots + (channel_pack ^ swizzle) * kPack;
        const A* m8 = coefficients + row * kSlots + ((channel_pack + 8) ^ swizzle) * kPack;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          A x[kWide];
          load_samples(tile + (row + r) * kSamples, swizzle, x);
          multiply(0, *reinterpret_cast<const Pack<A>*>(m + r * kSlots), x);
          multiply(1, *reinterpret_cast<const Pack<A>*>(m8 + r * kSlots), x);
        }
      }
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int pack = channel_pack + 8 * h, group = pack * kPack / slabs.padded;
        if (group >= slabs.groups_per_slab) continue;
        for (int row = 0; row < slabs.padded; row += 4) {
          const int from = group * slabs.padded + row;
          const A* m =
              coefficients + row * kSlots + (pack ^ CoefficientPlaces::swizzle(row)) * kPack;
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            A x[kWide];
            load_samples(tile + (from + r) * kSamples, Places::swizzle(from), x);
            multiply(h, *reinterpret_cast<const Pack<A>*>(m + r * kSlots), x);
          }
        }
      }
    }
  }

  template <bool ADDS>
  __device__ void write(const AffineTask<T>& task, const int* channel, SampleLayout::Start start,
                        int count) const {
    if (task.layout.channels_last)
      write_samples<ADDS>(task, channel, start, count);
    else
      write_channels<ADDS>(task, channel, start, count);
  }

  /// Writes four samples of a channel at a time.
  template <bool ADDS>
  __device__ void write_channels(const AffineTask<T>& task, const int* channel,
                                 SampleLayout::Start start, int count) const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const int c = channel[(channel_pack + 8 * h) * kPack + i];
        if (c < 0) continue;
#pragma unroll
        for (int p = 0; p < kSamplePacks; ++p) {
          const int local = (sample_pack + 16 * p) * kPack;
          if (local >= count) continue;
          if (task.output_fours) {
            const std::int64_t place = task.layout.offset(start, local, c);
            write_four<ADDS>(task, place,
                             {at[h][i][p * kPack], at[h][i][p * kPack + 1], at[h][i][p * kPack + 2],
                              at[h][i][p * kPack + 3]});
          } else {
#pragma unroll
            for (int v = 0; v < kPack; ++v)
              if (local + v < count)
                write_one<ADDS>(task, task.layout.offset(start, local + v, c),
                                at[h][i][p * kPack + v]);
          }
        }
      }
  }

  /// Writes four channels of a sample at a time.
  template <bool ADDS>
  __device__ void write_samples(const AffineTask<T>& task, const int* channel,
                                SampleLayout::Start start, int count) const {
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      const int local = (sample_pack + k / kPack * 16) * kPack + k % kPack;
      if (local >= count) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int slot = (channel_pack + 8 * h) * kPack;
        if (task.output_fours) {
          if (channel[slot] >= 0)
            write_four<ADDS>(task, task.layout.offset(start, local, channel[slot]),
                             {at[h][0][k], at[h][1][k], at[h][2][k], at[h][3][k]});
        } else {
#pragma unroll
          for (int i = 0; i < kPack; ++i)
            if (channel[slot + i] >= 0)
              write_one<ADDS>(task, task.layout.offset(start, local, channel[slot + i]),
                              at[h][i][k]);
        }
      }
    }
  }

  template <bool ADDS>
  static __device__ void write_one(const AffineTask<T>& task, std::int64_t place, A number) {
    if constexpr (ADDS) number += widened(task.residual.data[place]);
    task.output[place] = written<T>(number, task.least);
  }

  template <bool ADDS>
  static __device__ void write_four(const AffineTask<T>& task, std::int64_t place,
                                    Pack<A> numbers) {
    if constexpr (ADDS) {
      const auto added = *reinterpret_cast<const Pack<T>*>(task.residual.data + place);
#pragma unroll
      for (int v = 0; v < kPack; ++v) numbers.at[v] += widened(added.at[v]);
    }
    Pack<T> made;
#pragma unroll
    for (int v = 0; v < kPack; ++v) made.at[v] = written<T>(numbers.at[v], task.least);
    *reinterpret_cast<Pack<T>*>(task.output + place) = made;
  }
};

/// A step is one input's contribution to a tile. All steps of a tile come before those of the next
/// tile. ADDS: the task has a residual. Separate kernels, so that the others need no registers for
/// it.
template <typename T, bool JOINT, bool ADDS>
__global__ void __launch_bounds__(kAffineThreads, JOINT || sizeof(T) == 8 ? 2 : 3)
    affine_tiles(const __grid_constant__ AffineTask<T> task) {
  using Block = AffineBlock<T, JOINT>;
  using A = Accumulator<T>;
  using Loads = typename Block::Loads;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ A center[2][kSlots], bias[kSlots];
  __shared__ int channel[2][kSlots], channel_out[kSlots];
  A* tile = reinterpret_cast<A*>(memory);
  auto* raw = reinterpret_cast<RawUnit<T>*>(memory + Block::kTileBytes);
  A* coefficients = reinterpret_cast<A*>(memory + Block::kBytes);

  const Slabs& slabs = task.slabs;
  const int slab = int(blockIdx.x % unsigned(slabs.count)), parts = slabs.parts;
  const int first_slab = slab / parts * parts;  // of the group, if it has several
  const int steps = task.term_count * parts;
  const bool stays = task.stays;
  const int coefficient_count = slabs.padded * kSlots;

  const auto load_tables = [&](int term, int from, int which) {
    if (threadIdx.x >= kSlots) return;
    const int c = slabs.channel(from, int(threadIdx.x));
    const A* centers = task.terms[term].center;
    channel[which][threadIdx.x] = c;
    center[which][threadIdx.x] = c >= 0 && centers != nullptr ? centers[c] : A(0);
  };
  const auto count_of = [&](std::int64_t n) {
    const std::int64_t remaining = task.layout.samples - n * Block::kSamples;
    return int(remaining < Block::kSamples ? remaining : Block::kSamples);
  };
  const auto fetch = [&](std::int64_t n, int step, int which) {
    Loads::fetch(task.terms[step / parts].input, channel[which],
                 task.layout.start(n * Block::kSamples), count_of(n), raw);
  };

  if (threadIdx.x < kSlots) {
    const int c = slabs.channel(slab, int(threadIdx.x));
    channel_out[threadIdx.x] = c;
    bias[threadIdx.x] = c >= 0 && task.bias != nullptr ? task.bias[c] / task.divisor : A(0);
  }
  std::int64_t n = blockIdx.x / unsigned(slabs.count);
  for (int term = 0; stays && term < task.term_count; ++term) load_tables(term, slab, term);
  if (!stays && steps > 0) load_tables(0, first_slab, 0);
  __syncthreads();
  if (steps > 0) fetch(n, 0, 0);
  for (int term = 0; stays && term < task.term_count; ++term)
    load_coefficients(task, task.terms[term], slab, slab, coefficients + term * coefficient_count);

  Block block;
  int which = 0;  // the index of the current tables
  for (; n < task.tiles; n += task.stride) {
    for (int step = 0; step < steps; ++step) {
      const int term = step / parts, next = step + 1 < steps ? step + 1 : 0;
      const int next_which = stays ? next : 1 - which;
      const std::int64_t next_n = next > 0 ? n : n + task.stride;
      await_copies();
      Loads::template convert<false, typename Block::Places>(
          task.terms[term].input, {channel[which], center[which]}, count_of(n), raw, tile);
      if (!stays) {
        load_coefficients(task, task.terms[term], slab, first_slab + step % parts, coefficients);
        if (next_n < task.tiles) load_tables(next / parts, first_slab + next % parts, next_which);
      }
      __syncthreads();
      if (next_n < task.tiles) fetch(next_n, next, next_which);
      if (step == 0) block.start(bias);
      block.add(slabs, tile, coefficients + (stays ? term * coefficient_count : 0));
      which = next_which;
      __syncthreads();
    }
    if (steps == 0) block.start(bias);
    block.template write<ADDS>(task, channel_out, task.layout.start(n * Block::kSamples),
                               count_of(n));
  }
}

}  // namespace keel::cuda
