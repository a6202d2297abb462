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
}

/// Argument checks of the backward calls.
template <typename T, typename A>
void check_whiten_backward(const char* operation, const Activations<T>& dL_doutput,
                           const Activations<T>& input, const WhitenState<A>& state) {
  check_whiten(operation, input, state);
  require_same_shape(operation, "dL_doutput", input, dL_doutput);
  require_only_gated(operation, "dL_doutput", dL_doutput);
}

}  // namespace keel
