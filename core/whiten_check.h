#pragma once

#include "activations_check.h"
#include "keel/whiten.h"

namespace keel {

/// Argument checks of every call of a layer.
template <typename T, typename A>
void check_whiten(const char* operation, const Activations<T>& input, const WhitenState<A>& state) {
  require_valid(operation, "input", input);
  require_plain(operation, "input", input);
  require_per_group(operation, "covariance", input, state.covariance);
  require_per_group(operation, "layer_matrix", input, state.layer_matrix);
  require_per_group(operation, "vectors", input, state.spectrum.vectors);
  require_numbers(operation, "means", state.mean, input.channels);
  require_numbers(operation, "values", state.spectrum.values, input.channels);
  require_numbers(operation, "ranks", state.spectrum.rank, input.channels > 0 ? input.groups : 0);
}

/// Argument checks of the backward calls.
template <typename T, typename A>
void check_whiten_backward(const char* operation, const Activations<T>& dL_doutput,
                           const Activations<T>& input, const WhitenState<A>& state) {
  check_whiten(operation, input, state);
  require_same_shape(operation, "dL_doutput", input, dL_doutput);
  require_only_gated(operation, "dL_doutput", dL_doutput);
}

/// Once the output is allocated.
template <typename T, typename U>
void check_whiten_output(const char* operation, const Activations<T>& input,
                         const Activations<U>& output) {
  require_same_shape(operation, "output", input, output);
  require_apart(operation, "output", output, "input", input);
}

/// Once the input's gradient is allocated.
template <typename T, typename U>
void check_whiten_gradient(const char* operation, const Activations<T>& dL_doutput,
                           const Activations<T>& input, const Activations<U>& dL_dinput) {
  require_same_shape(operation, "dL_dinput", dL_doutput, dL_dinput);
  require_apart(operation, "dL_dinput", dL_dinput, "dL_doutput", dL_doutput);
  require_apart(operation, "dL_dinput", dL_dinput, "input", input);
}

/// The gradients of weight and bias are always written.
template <typename T, typename A>
void require_weight_gradients(const char* operation, const Activations<T>& input,
                              const A* dL_dweight, const A* dL_dbias) {
  require_numbers(operation, "dL_dweight", dL_dweight, input.channels);
  require_numbers(operation, "dL_dbias", dL_dbias, input.channels);
}

/// Backward's sums over the samples of all processes.
template <typename T, typename A>
void require_backward_sums(const char* operation, const Activations<T>& input, const A* sums) {
  require_numbers(operation, "sums", sums, input.channels * (1 + input.group_size()));
}

}  // namespace keel
