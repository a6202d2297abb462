#include "keel/affine.h"

#include <algorithm>
#include <array>

#include "activations_check.h"
#include "cuda/activations/gate.h"
#include "cuda/affine/kernel.cuh"
#include "cuda/affine/task.h"
#include "cuda/launch/launch.h"
#include "cuda/whiten/shortcuts.h"
#include "instantiate.h"

namespace keel::cuda {
namespace {

template <typename T, bool JOINT, bool ADDS>
void launch(const char* operation, AffineTask<T>& task, const Stream& stream) {
  using A = Accumulator<T>;
  const Slabs& slabs = task.slabs;
  constexpr int kBytes = AffineBlock<T, JOINT>::kBytes;
  const int bytes_of_term = slabs.padded * kSlots * int(sizeof(A));
  task.stays = slabs.parts == 1 && fits_a_block_of<affine_tiles<T, JOINT, ADDS>>(
                                       kBytes + task.term_count * bytes_of_term);
  const int bytes = kBytes + (task.stays ? task.term_count : 1) * bytes_of_term;
  const std::int64_t blocks =
      std::clamp(shared_memory_of_a_block() / (bytes + 4096), 1, 3) * multiprocessors();
  task.tiles = pieces<std::int64_t>(task.layout.samples, kAffineSamples<A>);
  task.stride = std::clamp<std::int64_t>(blocks / slabs.count, 1, task.tiles);
  allow_shared_memory(operation, affine_tiles<T, JOINT, ADDS>, bytes);
  affine_tiles<T, JOINT, ADDS>
      <<<unsigned(slabs.count * task.stride), kAffineThreads, bytes, native(stream)>>>(task);
  check_launch(operation);
}

}  // namespace

template <typename T>
void run_affine(const char* operation, std::span<const AffineInput<T>> inputs,
                Accumulator<T> divisor, const Accumulator<T>* bias, Activations<T> output,
                const Stream& stream, bool inputs_ready) {
  require_countable(operation, output);
  if (output.channels == 0 || output.samples() == 0) return;
  AffineTask<T> task;
  task.slabs = Slabs::of(int(output.channels), int(output.group_size()), kPack);
  for (const AffineInput<T>& input : inputs)
    task.terms[task.term_count++] = {source(input.activations, task.slabs), input.matrix,
                                     input.coefficient, input.center, input.covariance};
  task.inputs_ready = inputs_ready;
  task.divisor = divisor;
  task.bias = bias;
  task.output = output.data;
  if (output.rectified) task.least = 0;
  Activations<const T> added = output;
  added.data = output.residual;
  if (added) task.residual = source(added, task.slabs);
  task.layout = SampleLayout::of(output);
  task.output_fours =
      aligned(output.data, alignof(Pack<T>)) && aligned(output.residual, alignof(Pack<T>)) &&
      (task.layout.channels_last ? task.slabs.even(kPack) : output.positions % kPack == 0);
  if constexpr (sizeof(Accumulator<T>) == 4)
    if (run_on_full_slabs(operation, task, stream)) return;
  const bool joint = task.slabs.padded > kSlots / 2;
  if (task.residual.data != nullptr)
    joint ? launch<T, true, true>(operation, task, stream)
          : launch<T, false, true>(operation, task, stream);
  else
    joint ? launch<T, true, false>(operation, task, stream)
          : launch<T, false, false>(operation, task, stream);
}

template <typename T>
void affine(Matrices<const Accumulator<T>> matrix, const Accumulator<T>* center,
            const Accumulator<T>* bias, Activations<const T> input, Activations<T> output,
            const Stream& stream) {
  check_affine("keel::affine", matrix, input, output);
  const std::array<AffineInput<T>, 1> inputs{{{input, matrix, Coefficient::plain, center}}};
  run_affine<T>("keel::affine", inputs, 1, bias, output, stream);
}

template <typename T>
void affine_about_mean(Matrices<const Accumulator<T>> matrix, const Accumulator<T>* mean,
                       Matrices<const Accumulator<T>> covariance, const Accumulator<T>* bias,
                       Activations<const T> input, Activations<T> output, const Stream& stream) {
  const AffineInput<T> term{input, matrix, Coefficient::plain, mean, covariance};
  run_affine<T>("keel::affine", {&term, 1}, 1, bias, output, stream);
}

template <typename T>
void affine_backward_about_mean(Matrices<const Accumulator<T>> matrix,
                                Activations<const T> dL_doutput,
                                Matrices<const Accumulator<T>> dL_dcovariance,
                                const Accumulator<T>* dL_dmean, Activations<const T> input,
                                const Accumulator<T>* mean,
                                Matrices<const Accumulator<T>> covariance, Activations<T> dL_dinput,
                                const Stream& stream) {
  const auto divisor = Accumulator<T>(std::max<std::int64_t>(1, dL_doutput.samples()));
  const std::array<AffineInput<T>, 2> inputs{
      {{dL_doutput, matrix, Coefficient::transposed, nullptr},
       {input, dL_dcovariance, Coefficient::doubled, mean, covariance}}};
  run_affine<T>("keel::affine_backward", inputs, divisor, dL_dmean, dL_dinput, stream, true);
}

template <typename T>
void affine_backward(Matrices<const Accumulator<T>> matrix, Activations<const T> dL_doutput,
                     Matrices<const Accumulator<T>> dL_dcovariance, const Accumulator<T>* dL_dmean,
                     Activations<const T> input, const Accumulator<T>* mean,
                     Activations<T> dL_dinput, const Stream& stream) {
  check_affine_backward("keel::affine_backward", matrix, dL_doutput, dL_dcovariance, input,
                        dL_dinput);
  const auto divisor = Accumulator<T>(std::max<std::int64_t>(1, dL_doutput.samples()));
  const WithoutGate<T> plain("keel::affine_backward", dL_doutput, stream);
  const std::array<AffineInput<T>, 2> inputs{
      {{plain, matrix, Coefficient::transposed, nullptr},
       {input, dL_dcovariance, Coefficient::symmetric, mean}}};
  run_affine<T>("keel::affine_backward",
                std::span<const AffineInput<T>>(inputs).first(dL_dcovariance ? 2 : 1), divisor,
                dL_dmean, dL_dinput, stream);
}

#define KEEL_STAGES(T)                      \
  KEEL_STAGE(run_affine, T)                 \
  KEEL_STAGE(affine_about_mean, T)          \
  KEEL_STAGE(affine_backward_about_mean, T) \
  KEEL_STAGE(affine, T)                     \
  KEEL_STAGE(affine_backward, T)
KEEL_FOR_STORED(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
