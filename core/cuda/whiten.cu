#include "keel/whiten.h"

#include "cuda/activations/gate.h"
#include "cuda/launch/launch.h"
#include "cuda/whiten/shortcuts.h"
#include "instantiate.h"
#include "keel/moments.h"
#include "keel/weight_backward.h"
#include "whiten_check.h"

namespace keel::cuda {
namespace {

/// From the state's mean and covariance, which the last kernel on the stream writes, to the output.
template <typename T>
void apply(const char* operation, const LayerMap& map, Activations<const T> input,
           const Accumulator<T>* weight, const Accumulator<T>* bias,
           const WhitenState<Accumulator<T>>& state, const Destination<T>& destination,
           const Stream& stream) {
  using A = Accumulator<T>;
  const std::int64_t groups = input.groups, d = input.group_size();
  Scratch<A> scaled(operation, stream, weight != nullptr ? groups * d * d : 0);
  const Matrices<A> matrix = weight != nullptr ? contiguous<A>(scaled, groups, d) : Matrices<A>{};
  weighted_layer_matrix<A>(map, state.covariance, weight, state.layer_matrix, matrix,
                           state.spectrum, stream);
  const Activations<T> output = destination.get();
  check_whiten_output(operation, input, output);
  affine_about_mean<T>(matrix ? matrix : state.layer_matrix, state.mean, state.covariance, bias,
                       input, output, stream);
}

/// The size of apply_backward's scratch memory.
template <typename T>
std::int64_t backward_scratch_size(const Activations<const T>& input) {
  return input.channels * (1 + 2 * input.group_size());
}

/// From backward's sums, which the last kernel on the stream writes, to dL_dinput and dL_dweight.
template <typename T>
void apply_backward(const char* operation, const LayerMap& map, const SpectralRule& rule,
                    Activations<const T> dL_doutput, Activations<const T> input,
                    const Accumulator<T>* weight, const WhitenState<const Accumulator<T>>& state,
                    const Accumulator<T>* sum, const Accumulator<T>* cross,
                    const Destination<T>& destination, Accumulator<T>* dL_dweight,
                    Accumulator<T>* room, const Stream& stream) {
  using A = Accumulator<T>;
  const std::int64_t channels = input.channels, d = input.group_size();
  const auto per_group = [&](auto* data) { return contiguous(data, input.groups, d); };
  const auto matrix = per_group(room), dL_dcovariance = per_group(room + channels * d);
  A* const dL_dmean = room + 2 * channels * d;
  weighted_layer_matrix_backward<A>(map, rule, state.covariance, state.spectrum, state.layer_matrix,
                                    weight, sum, per_group(cross), dL_dweight, dL_dmean,
                                    dL_dcovariance, matrix, stream);
  const Activations<T> dL_dinput = destination.get();
  check_whiten_gradient(operation, dL_doutput, input, dL_dinput);
  affine_backward_about_mean<T>(matrix, dL_doutput, dL_dcovariance, dL_dmean, input, state.mean,
                                state.covariance, dL_dinput, stream);
}

/// to = from * samples / count.
template <typename A>
__global__ void take_share(const A* from, std::int64_t size, double samples, const double* count,
                           A* to) {
  const std::int64_t k = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k < size) to[k] = from[k] * A(samples / *count);
}

}  // namespace

template <typename T>
void whiten(const LayerMap& map, Activations<const T> input, const Accumulator<T>* weight,
            const Accumulator<T>* bias, const WhitenState<Accumulator<T>>& state,
            const Destination<T>& output, const Stream& stream) {
  constexpr const char* kOperation = "keel::whiten";
  check_whiten(kOperation, input, state);
  moments<T>(input, state.mean, state.covariance, stream);
  apply<T>(kOperation, map, input, weight, bias, state, output, stream);
}

template <typename T>
void whiten_apply(const LayerMap& map, Activations<const T> input, const double* sums,
                  const double* shift, const Accumulator<T>* weight, const Accumulator<T>* bias,
                  const WhitenState<Accumulator<T>>& state, const Destination<T>& output,
                  const Stream& stream) {
  constexpr const char* kOperation = "keel::whiten_apply";
  check_whiten(kOperation, input, state);
  if (input.channels > 0) require_numbers(kOperation, "sums", sums, 1);
  moments_from_partial<Accumulator<T>>(sums, shift, state.mean, state.covariance, stream);
  apply<T>(kOperation, map, input, weight, bias, state, output, stream);
}

template <typename T>
void whiten_backward(const LayerMap& map, const SpectralRule& rule, Activations<const T> dL_doutput,
                     Activations<const T> input, const Accumulator<T>* weight,
                     const WhitenState<const Accumulator<T>>& state,
                     const Destination<T>& dL_dinput, Accumulator<T>* dL_dweight,
                     Accumulator<T>* dL_dbias, const Stream& stream) {
  using A = Accumulator<T>;
  constexpr const char* kOperation = "keel::whiten_backward";
  check_whiten_backward(kOperation, dL_doutput, input, state);
  require_weight_gradients(kOperation, input, dL_dweight, dL_dbias);
  const WithoutGate<T> plain(kOperation, dL_doutput, stream);
  const std::int64_t entries = input.channels * input.group_size();
  Scratch<A> memory(kOperation, stream, entries + backward_scratch_size(input));
  A* const cross = memory;
  cross_moments_about_mean<T>(plain, input, state.mean, state.covariance, dL_dbias,
                              contiguous<A>(cross, input.groups, input.group_size()), stream);
  apply_backward<T>(kOperation, map, rule, plain, input, weight, state, dL_dbias, cross, dL_dinput,
                    dL_dweight, cross + entries, stream);
}

template <typename T>
void whiten_backward_sums(Activations<const T> dL_doutput, Activations<const T> input,
                          const WhitenState<const Accumulator<T>>& state, Accumulator<T>* sums,
                          Accumulator<T>* dL_dweight, Accumulator<T>* dL_dbias,
                          const Stream& stream) {
  using A = Accumulator<T>;
  constexpr const char* kOperation = "keel::whiten_backward_sums";
  check_whiten_backward(kOperation, dL_doutput, input, state);
  require_weight_gradients(kOperation, input, dL_dweight, dL_dbias);
  require_backward_sums(kOperation, input, sums);
  if (input.channels == 0) return;
  const WithoutGate<T> plain(kOperation, dL_doutput, stream);
  const auto cross = contiguous<A>(sums + input.channels, input.groups, input.group_size());
  cross_moments_about_mean<T>(plain, input, state.mean, state.covariance, sums, cross, stream);
  weight_backward<A>(nullptr, state.layer_matrix, nullptr, cross, dL_dweight, nullptr, {}, {},
                     stream);
  check(kOperation, cudaMemcpyAsync(dL_dbias, sums, std::size_t(input.channels) * sizeof(A),
                                    cudaMemcpyDeviceToDevice, native(stream)));
}

template <typename T>
void whiten_backward_apply(const LayerMap& map, const SpectralRule& rule,
                           Activations<const T> dL_doutput, Activations<const T> input,
                           const Accumulator<T>* weight,
                           const WhitenState<const Accumulator<T>>& state,
                           const Accumulator<T>* sums, const double* count,
                           const Destination<T>& dL_dinput, const Stream& stream) {
  using A = Accumulator<T>;
  constexpr const char* kOperation = "keel::whiten_backward_apply";
  check_whiten_backward(kOperation, dL_doutput, input, state);
  require_backward_sums(kOperation, input, sums);
  require_numbers(kOperation, "number of samples", count, 1);
  const std::int64_t channels = input.channels, size = channels * (1 + input.group_size());
  // The sums, the gradient of the weight over all processes (not used), and the scratch memory.
  Scratch<A> memory(kOperation, stream, size + channels + backward_scratch_size(input));
  A *const own = memory, *const dL_dweight = own + size;
  const WithoutGate<T> plain(kOperation, dL_doutput, stream);
  // affine_backward divides by its own number of samples, but must divide by that of all processes.
  // This launch comes first because apply_backward requires that the last kernel on the stream is
  // newer than the state.
  constexpr std::int64_t kThreads = 128;
  if (size > 0) {
    take_share<A><<<unsigned((size + kThreads - 1) / kThreads), kThreads, 0, native(stream)>>>(
        sums, size, double(input.samples()), count, own);
    check_launch(kOperation);
  }
  apply_backward<T>(kOperation, map, rule, plain, input, weight, state, own, own + channels,
                    dL_dinput, dL_dweight, dL_dweight + channels, stream);
}

#define KEEL_STAGES(T)                \
  KEEL_STAGE(whiten, T)               \
  KEEL_STAGE(whiten_apply, T)         \
  KEEL_STAGE(whiten_backward, T)      \
  KEEL_STAGE(whiten_backward_sums, T) \
  KEEL_STAGE(whiten_backward_apply, T)
KEEL_FOR_STORED(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
