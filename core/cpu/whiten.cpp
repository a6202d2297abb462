#include "keel/whiten.h"

#include <algorithm>

#include "instantiate.h"
#include "keel/affine.h"
#include "keel/moments.h"
#include "keel/weight_backward.h"
#include "scratch.h"
#include "whiten_check.h"

namespace keel::cpu {
namespace {

/// From the state's mean and covariance to the output.
template <typename T>
void apply(const char* operation, const LayerMap& map, Activations<const T> input,
           const Accumulator<T>* weight, const Accumulator<T>* bias,
           const WhitenState<Accumulator<T>>& state, const Destination<T>& destination,
           const Executor& executor) {
  using A = Accumulator<T>;
  layer_matrix<A>(map, state.covariance, state.layer_matrix, state.spectrum, executor);
  const std::int64_t d = input.group_size();
  Scratch<A> scaled(weight != nullptr ? input.channels * d : 0);
  Matrices<const A> matrix = state.layer_matrix;
  if (weight != nullptr) {
    for (std::int64_t i = 0; i < input.channels; ++i) {
      const A* const row = matrix[i / d] + i % d * matrix.row_stride;
      for (std::int64_t j = 0; j < d; ++j) scaled[i * d + j] = weight[i] * row[j];
    }
    matrix = contiguous<const A>(scaled, input.groups, d);
  }
  const Activations<T> output = destination.get();
  check_whiten_output(operation, input, output);
  affine<T>(matrix, state.mean, bias, input, output, executor);
}

}  // namespace

template <typename T>
void whiten(const LayerMap& map, Activations<const T> input, const Accumulator<T>* weight,
            const Accumulator<T>* bias, const WhitenState<Accumulator<T>>& state,
            const Destination<T>& output, const Executor& executor) {
  constexpr const char* kOperation = "keel::whiten";
  check_whiten(kOperation, input, state);
  moments<T>(input, state.mean, state.covariance, executor);
  apply<T>(kOperation, map, input, weight, bias, state, output, executor);
}

template <typename T>
void whiten_apply(const LayerMap& map, Activations<const T> input, const double* sums,
                  const double* shift, const Accumulator<T>* weight, const Accumulator<T>* bias,
                  const WhitenState<Accumulator<T>>& state, const Destination<T>& output,
                  const Executor& executor) {
  constexpr const char* kOperation = "keel::whiten_apply";
  check_whiten(kOperation, input, state);
  if (input.channels > 0) require_numbers(kOperation, "sums", sums, 1);
  moments_from_partial<Accumulator<T>>(sums, shift, state.mean, state.covariance);
  apply<T>(kOperation, map, input, weight, bias, state, output, executor);
}

template <typename T>
void whiten_backward_sums(Activations<const T> dL_doutput, Activations<const T> input,
                          const WhitenState<const Accumulator<T>>& state, Accumulator<T>* sums,
                          Accumulator<T>* dL_dweight, Accumulator<T>* dL_dbias,
                          const Executor& executor) {
  using A = Accumulator<T>;
  constexpr const char* kOperation = "keel::whiten_backward_sums";
  check_whiten_backward(kOperation, dL_doutput, input, state);
  require_weight_gradients(kOperation, input, dL_dweight, dL_dbias);
  require_backward_sums(kOperation, input, sums);
  const auto cross = contiguous<A>(sums + input.channels, input.groups, input.group_size());
  cross_moments<T>(dL_doutput, input, state.mean, sums, cross, executor);
  std::copy_n(sums, input.channels, dL_dbias);
  weight_backward<A>(nullptr, state.layer_matrix, nullptr, cross, dL_dweight, nullptr, {}, {},
                     executor);
}

template <typename T>
void whiten_backward_apply(const LayerMap& map, const SpectralRule& rule,
                           Activations<const T> dL_doutput, Activations<const T> input,
                           const Accumulator<T>* weight,
                           const WhitenState<const Accumulator<T>>& state,
                           const Accumulator<T>* sums, const double* count,
                           const Destination<T>& destination, const Executor& executor) {
  using A = Accumulator<T>;
  constexpr const char* kOperation = "keel::whiten_backward_apply";
  check_whiten_backward(kOperation, dL_doutput, input, state);
  require_backward_sums(kOperation, input, sums);
  require_numbers(kOperation, "number of samples", count, 1);
  const std::int64_t channels = input.channels, d = input.group_size(), entries = channels * d;
  Scratch<A> matrix(entries), dL_dlayer_matrix(entries), gradients(channels + entries);
  A *const dL_dmean = gradients, *const dL_dcovariance = gradients + channels;
  const auto per_group = [&](auto* data) { return contiguous(data, input.groups, d); };
  weight_backward<A>(weight, state.layer_matrix, sums, per_group(sums + channels), nullptr,
                     dL_dmean, per_group(dL_dlayer_matrix.data()), per_group(matrix.data()),
                     executor);
  layer_matrix_backward<A>(map, rule, state.covariance, state.spectrum,
                           per_group(dL_dlayer_matrix.data()), per_group(dL_dcovariance), executor);
  // affine_backward divides by its own number of samples, but must divide by that of all processes.
  const A share = A(double(input.samples()) / *count);
  for (std::int64_t k = 0; k < channels + entries; ++k) gradients[k] *= share;
  const Activations<T> dL_dinput = destination.get();
  check_whiten_gradient(kOperation, dL_doutput, input, dL_dinput);
  affine_backward<T>(per_group(matrix.data()), dL_doutput, per_group(dL_dcovariance), dL_dmean,
                     input, state.mean, dL_dinput, executor);
}

template <typename T>
void whiten_backward(const LayerMap& map, const SpectralRule& rule, Activations<const T> dL_doutput,
                     Activations<const T> input, const Accumulator<T>* weight,
                     const WhitenState<const Accumulator<T>>& state,
                     const Destination<T>& dL_dinput, Accumulator<T>* dL_dweight,
                     Accumulator<T>* dL_dbias, const Executor& executor) {
  constexpr const char* kOperation = "keel::whiten_backward";
  check_whiten_backward(kOperation, dL_doutput, input, state);
  require_weight_gradients(kOperation, input, dL_dweight, dL_dbias);
  Scratch<Accumulator<T>> sums(input.channels * (1 + input.group_size()));
  const double count = double(input.samples());
  whiten_backward_sums<T>(dL_doutput, input, state, sums, dL_dweight, dL_dbias, executor);
  whiten_backward_apply<T>(map, rule, dL_doutput, input, weight, state, sums, &count, dL_dinput,
                           executor);
}

#define KEEL_STAGES(T)                \
  KEEL_STAGE(whiten, T)               \
  KEEL_STAGE(whiten_apply, T)         \
  KEEL_STAGE(whiten_backward, T)      \
  KEEL_STAGE(whiten_backward_sums, T) \
  KEEL_STAGE(whiten_backward_apply, T)
KEEL_FOR_STORED(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
