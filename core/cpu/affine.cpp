#include "keel/affine.h"

#include <algorithm>
#include <limits>

#include "activation_columns.h"
#include "activations_check.h"
#include "instantiate.h"

namespace keel::cpu {
namespace {

constexpr std::int64_t kSlab = 128;              // channels per task, at least one group
constexpr std::int64_t kTaskElements = 1 << 16;  // enough to amortise the cost of a task

template <typename T>
void run(AffineTask<T> task, const Activations<T>& output, const Executor& executor) {
  const ActivationKernels<T>& kernel = activation_kernels<T>();
  const std::int64_t channels = output.channels, d = output.group_size(), m = output.samples();
  if (channels == 0 || m == 0) return;
  const std::int64_t stride = pieces(d, kernel.lanes) * kernel.lanes;
  const bool by_sample =
      task.output.channel_stride == 1 && d >= kernel.lanes && 4 * d >= 3 * stride;
  Scratch<Accumulator<T>> columns(by_sample ? channels * task.inputs * stride : 0);
  if (by_sample) {
    for (std::int64_t i = 0; i < channels; ++i)
      for (std::int64_t k = 0; k < task.inputs * d; ++k) {
        Accumulator<T>* const column = columns + i / d * d * task.inputs * stride + k * stride;
        column[i % d] = task.matrix[i * task.inputs * d + k];
        if (i % d == 0) std::fill(column + d, column + stride, 0);
      }
    task.by_sample = columns;
  }
  // Small groups share a block, so that the transposition fills the vectors.
  const std::int64_t block = std::max(d, kernel.lanes / d * d);
  const std::int64_t slab = std::max(block, kSlab / block * block);
  const std::int64_t tile = by_sample ? kernel.affine_sample_tile : kernel.affine_tile;
  const std::int64_t samples =
      std::max<std::int64_t>(1, kTaskElements / std::min(slab, channels) / tile) * tile;
  const std::int64_t slabs = pieces(channels, slab);
  executor(slabs * pieces(m, samples), [&](std::int64_t index) {
    const std::int64_t channel = index % slabs * slab, end = std::min(channels, channel + slab);
    const std::int64_t begin = index / slabs * samples, last = std::min(m, begin + samples);
    Scratch<Accumulator<T>> scratch(kernel.affine_scratch(task.tiles(), block));
    for (std::int64_t first = begin; first < last; first += tile)
      for (std::int64_t c = channel; c < end; c += block)
        kernel.affine(task, c, std::min(block, end - c), first, std::min(tile, last - first),
                      scratch);
  });
}

}  // namespace

template <typename T>
void affine(Matrices<const Accumulator<T>> matrix, const Accumulator<T>* center,
            const Accumulator<T>* bias, Activations<const T> input, Activations<T> output,
            const Executor& executor) {
  check_affine("keel::affine", matrix, input, output);
  using A = Accumulator<T>;
  const std::int64_t channels = input.channels, d = input.group_size();
  const PerChannel<A> centers(channels, center), biases(channels, bias), zeros(channels, nullptr);
  Scratch<A> coefficients(channels * d);
  for (std::int64_t i = 0; i < channels; ++i)
    std::copy_n(matrix[i / d] + i % d * matrix.row_stride, d, coefficients + i * d);
  run(AffineTask<T>{1,
                    {columns(input), {}},
                    {centers.data(), nullptr},
                    coefficients,
                    biases.data(),
                    columns(output),
                    d,
                    output.rectified ? A(0) : -std::numeric_limits<A>::infinity(),
                    center == nullptr,
                    {},
                    columns_of(static_cast<const T*>(output.residual), output),
                    zeros.data()},
      output, executor);
}

template <typename T>
void affine_backward(Matrices<const Accumulator<T>> matrix, Activations<const T> dL_doutput,
                     Matrices<const Accumulator<T>> dL_dcovariance, const Accumulator<T>* dL_dmean,
                     Activations<const T> input, const Accumulator<T>* mean,
                     Activations<T> dL_dinput, const Executor& executor) {
  check_affine_backward("keel::affine_backward", matrix, dL_doutput, dL_dcovariance, input,
                        dL_dinput);
  const bool through_moments = bool(dL_dcovariance);
  using A = Accumulator<T>;
  const std::int64_t channels = dL_doutput.channels, d = dL_doutput.group_size();
  const A m = A(std::max<std::int64_t>(1, dL_doutput.samples()));
  const int inputs = through_moments ? 2 : 1;

  const PerChannel<A> zeros(channels, nullptr), means(channels, mean), biases(channels, dL_dmean);
  for (std::int64_t i = 0; i < channels; ++i) biases.data()[i] /= m;
  Scratch<A> coefficients(channels * d * inputs);
  for (std::int64_t i = 0; i < channels; ++i)
    for (std::int64_t j = 0; j < d; ++j) {
      A* row = coefficients + i * inputs * d;
      row[j] = matrix[i / d][j * matrix.row_stride + i % d];
      if (through_moments) {
        const A* gradient = dL_dcovariance[i / d];
        row[d + j] = (gradient[i % d * dL_dcovariance.row_stride + j] +
                      gradient[j * dL_dcovariance.row_stride + i % d]) /
                     m;
      }
    }
  run(AffineTask<T>{inputs,
                    {columns(dL_doutput), through_moments ? columns(input) : Columns<const T>{}},
                    {zeros.data(), means.data()},
                    coefficients,
                    biases.data(),
                    columns(dL_dinput),
                    d,
                    -std::numeric_limits<A>::infinity(),
                    true,
                    columns_of(dL_doutput.gate, dL_doutput)},
      dL_dinput, executor);
}

#define KEEL_STAGES(T)  \
  KEEL_STAGE(affine, T) \
  KEEL_STAGE(affine_backward, T)
KEEL_FOR_STORED(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
