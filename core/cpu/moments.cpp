#include "keel/moments.h"

#include <algorithm>
#include <vector>

#include "activation_columns.h"
#include "activations_check.h"
#include "instantiate.h"
#include "moments_shift.h"

namespace keel::cpu {
namespace {

constexpr std::int64_t kWidestBlock = 128;  // channels: two tiles and the products stay in L2
constexpr std::int64_t kTasks = 32;

float value(float x) { return x; }
double value(double x) { return x; }
float value(Half x) { return to_float(x); }
float value(BFloat16 x) { return to_float(x); }

/// The blocks of channels, the runs of blocks that one task takes (slabs), and the chunks of
/// samples. Nothing here depends on the executor, so the sums do not either.
struct Partition {
  std::vector<MomentBlock> blocks;
  std::vector<std::size_t> slab_begin;  ///< indices into blocks; the last one is blocks.size()
  std::int64_t chunk_samples = 0;
  std::int64_t chunks = 0;
  std::int64_t scratch = 0;

  std::int64_t slabs() const { return std::int64_t(slab_begin.size()) - 1; }
};

template <typename T>
Partition partition(const Activations<const T>& x, bool symmetric) {
  const ActivationKernels<T>& kernel = activation_kernels<T>();
  const std::int64_t d = x.group_size();
  Partition result;
  if (d <= kWidestBlock) {
    const std::int64_t width = std::max(d, kernel.lanes / d * d);
    for (std::int64_t c = 0; c < x.channels; c += width) {
      const std::int64_t w = std::min(width, x.channels - c);
      result.blocks.push_back({c, w, c, w, symmetric, x.gate != nullptr});
    }
  } else {
    for (std::int64_t group = 0; group < x.channels; group += d)
      for (std::int64_t i = 0; i < d; i += kWidestBlock)
        for (std::int64_t j = 0; j < (symmetric ? i + 1 : d); j += kWidestBlock)
          result.blocks.push_back({group + i, std::min(kWidestBlock, d - i), group + j,
                                   std::min(kWidestBlock, d - j), symmetric && i == j,
                                   x.gate != nullptr});
  }
  std::int64_t filled = kWidestBlock;
  for (std::size_t b = 0; b < result.blocks.size(); ++b) {
    const MomentBlock& block = result.blocks[b];
    if (filled + block.left_width > kWidestBlock) {
      result.slab_begin.push_back(b);
      filled = 0;
    }
    filled += block.left_width;
    result.scratch = std::max(result.scratch, kernel.moments_scratch(block));
  }
  result.slab_begin.push_back(result.blocks.size());

  const std::int64_t m = x.samples(), slabs = std::max<std::int64_t>(1, result.slabs());
  const std::int64_t most =
      std::max<std::int64_t>(1, m / std::max(16 * d, 2 * kernel.moments_tile));
  const std::int64_t wanted = std::min(most, pieces(kTasks, slabs));
  result.chunk_samples = std::max<std::int64_t>(1, pieces(pieces(m, wanted), kernel.moments_tile)) *
                         kernel.moments_tile;
  result.chunks = pieces(m, result.chunk_samples);
  return result;
}

/// The sums over all samples: `sum` (channels) and `second` (channels x d; only the lower triangle
/// of each group if `symmetric`).
template <typename T>
void sum_products(const MomentsTask<T>& task, const Activations<const T>& x, bool symmetric,
                  double* sum, double* second, const Executor& executor) {
  const ActivationKernels<T>& kernel = activation_kernels<T>();
  const std::int64_t d = x.group_size(), m = x.samples();
  const Partition parts = partition(x, symmetric);
  const std::int64_t set = x.channels * (d + 1);  // one chunk's sums: second, then sum
  Scratch<double> sums(parts.chunks * set);

  executor(parts.slabs() * parts.chunks, [&](std::int64_t index) {
    const std::int64_t chunk = index / parts.slabs(), slab = index % parts.slabs();
    double* chunk_second = sums + chunk * set;
    double* chunk_sum = chunk_second + x.channels * d;
    const auto begin = parts.blocks.begin() + std::ptrdiff_t(parts.slab_begin[std::size_t(slab)]);
    const auto end = parts.blocks.begin() + std::ptrdiff_t(parts.slab_begin[std::size_t(slab) + 1]);
    for (auto block = begin; block != end; ++block)
      for (std::int64_t c = block->left; c < block->left + block->left_width; ++c) {
        const std::int64_t offset = block->right - c / d * d;  // negative only for merged groups
        std::fill_n(chunk_second + c * d + std::max<std::int64_t>(0, offset),
                    std::min(d, block->right_width), 0.0);
        if (offset <= 0) chunk_sum[c] = 0;
      }
    Scratch<Accumulator<T>> scratch(parts.scratch);
    const std::int64_t last = std::min(m, (chunk + 1) * parts.chunk_samples);
    for (std::int64_t first = chunk * parts.chunk_samples; first < last;
         first += kernel.moments_tile)
      for (auto block = begin; block != end; ++block) {
        const bool with_sum = block->right <= block->left / d * d;  // once for each left channel
        kernel.moments(task, *block, first, std::min(kernel.moments_tile, last - first),
                       with_sum ? chunk_sum : nullptr, chunk_second, scratch);
      }
  });

  constexpr std::int64_t kRows = 16;
  executor(pieces(x.channels, kRows), [&](std::int64_t piece) {
    const std::int64_t begin = piece * kRows, end = std::min(x.channels, begin + kRows);
    std::fill(second + begin * d, second + end * d, 0.0);
    std::fill(sum + begin, sum + end, 0.0);
    for (std::int64_t chunk = 0; chunk < parts.chunks; ++chunk) {
      const double* from = sums + chunk * set;
      for (std::int64_t c = begin; c < end; ++c) {
        const std::int64_t row = symmetric ? c % d + 1 : d;
        for (std::int64_t j = 0; j < row; ++j) second[c * d + j] += from[c * d + j];
        sum[c] += from[x.channels * d + c];
      }
    }
  });
}

/// Finds a shift near every channel's mean.
template <typename T>
void choose_shift(const Activations<const T>& x, Accumulator<T>* shift) {
  const std::int64_t m = x.samples();
  std::vector<SampledChannel> channels(static_cast<std::size_t>(x.channels));
  for (int q = 0; q < kShiftSamples && q < m; ++q) {
    const std::int64_t sample = sample_for_shift(m, q);
    for (std::int64_t c = 0; c < x.channels; ++c)
      channels[std::size_t(c)].add(value(x.data[x.index(sample, c)]));
  }
  for (std::int64_t c = 0; c < x.channels; ++c)
    shift[c] = Accumulator<T>(channels[std::size_t(c)].shift());
}

/// Computes the partial moments about a shift near the data, and the shift. Only the lower
/// triangles are written.
template <typename T>
void sum_about_own_shift(const Activations<const T>& input, double* shift, double* sums,
                         const Executor& executor) {
  const PerChannel<Accumulator<T>> own(input.channels, nullptr);
  choose_shift(input, own.data());
  std::copy_n(own.data(), input.channels, shift);
  sums[0] = double(input.samples());
  const Columns<const T> x = columns(input);
  sum_products(MomentsTask<T>{x, x, own.data(), own.data(), input.group_size()}, input, true,
               sums + 1, sums + 1 + input.channels, executor);
}

}  // namespace

template <typename T>
void partial_moments(Activations<const T> input, const double* shift, double* sums,
                     const Executor& executor) {
  check_partial_moments("keel::partial_moments", input, sums);
  const std::int64_t channels = input.channels, d = input.group_size();
  if (channels == 0) return;
  Scratch<double> move(channels);
  sum_about_own_shift(input, move, sums, executor);
  if (shift != nullptr)
    for (std::int64_t i = 0; i < channels; ++i) move[i] -= shift[i];
  const double count = sums[0];
  double *const sum = sums + 1, *const second = sum + channels;
  for (std::int64_t i = 0; i < channels; ++i) {
    const std::int64_t group = i / d * d;
    for (std::int64_t j = group; j <= i; ++j) {
      double& entry = second[i * d + j - group];
      entry += sum[i] * move[j] + move[i] * sum[j] + count * (move[i] * move[j]);
      second[j * d + i - group] = entry;
    }
  }
  for (std::int64_t i = 0; i < channels; ++i) sum[i] += count * move[i];
}

template <typename A>
void moments_from_partial(const double* sums, const double* shift, A* mean,
                          Matrices<A> covariance) {
  check_moments_from_partial("keel::moments_from_partial", sums, mean, covariance);
  if (holds_nothing(covariance)) return;
  const std::int64_t d = covariance.n, channels = covariance.batch * d;
  const double count = sums[0], *const sum = sums + 1, *const second = sum + channels;
  for (std::int64_t i = 0; i < channels; ++i) {
    const std::int64_t group = i / d * d;
    A* const matrix = covariance[i / d];
    const double off_i = sum[i] / count;
    mean[i] = A((shift != nullptr ? shift[i] : 0) + off_i);
    for (std::int64_t j = group; j <= i; ++j) {
      double entry = second[i * d + j - group] / count - off_i * (sum[j] / count);
      if (i == j && entry < 0) entry = 0;
      matrix[(i - group) * covariance.row_stride + j - group] = A(entry);
      matrix[(j - group) * covariance.row_stride + i - group] = A(entry);
    }
  }
}
template void moments_from_partial(const double*, const double*, float*, Matrices<float>);
template void moments_from_partial(const double*, const double*, double*, Matrices<double>);

template <typename T>
void moments(Activations<const T> input, Accumulator<T>* mean, Matrices<Accumulator<T>> covariance,
             const Executor& executor) {
  check_moments("keel::moments", input, mean, covariance);
  if (input.channels == 0) return;
  Scratch<double> shift(input.channels), sums(partial_moments_size(input.channels, input.groups));
  sum_about_own_shift(input, shift, sums, executor);
  moments_from_partial<Accumulator<T>>(sums, shift, mean, covariance);
}

template <typename T>
void cross_moments(Activations<const T> left, Activations<const T> right,
                   const Accumulator<T>* center, Accumulator<T>* sum,
                   Matrices<Accumulator<T>> cross, const Executor& executor) {
  check_cross_moments("keel::cross_moments", left, right, sum, cross);
  using A = Accumulator<T>;
  const std::int64_t channels = left.channels, d = left.group_size();
  if (channels == 0) return;
  const PerChannel<A> left_center(channels, nullptr), right_center(channels, center);
  Scratch<double> sums(channels), products(channels * d);
  sum_products(MomentsTask<T>{columns(left), columns(right), left_center.data(),
                              right_center.data(), d, columns_of(left.gate, left), true},
               left, false, sums, products, executor);
  for (std::int64_t i = 0; i < channels; ++i) {
    sum[i] = A(sums[i]);
    for (std::int64_t j = 0; j < d; ++j)
      cross[i / d][i % d * cross.row_stride + j] = A(products[i * d + j]);
  }
}

#define KEEL_STAGES(T)           \
  KEEL_STAGE(partial_moments, T) \
  KEEL_STAGE(moments, T)         \
  KEEL_STAGE(cross_moments, T)
KEEL_FOR_STORED(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
