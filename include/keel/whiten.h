#pragma once

// A whitening layer's training step as one call: moments -> subspace -> scale -> affine, and the way back.
// The stages and their contracts are those of the headers below; a device that gains from knowing what
// follows what has them fused here.

#include <concepts>
#include <functional>
#include <utility>

#include "keel/activations.h"
#include "keel/matrices.h"
#include "keel/stream.h"
#include "keel/subspace.h"

namespace keel {

/// What forward finds out about the batch, all of which backward needs. A view: it owns nothing.
template <typename A>
struct WhitenState {
  A* mean = nullptr;       ///< channels
  Matrices<A> covariance;  ///< groups of d x d
  Matrices<A> subspace;    ///< S, groups of d x d
  SubspaceState<A> spectrum;

  operator WhitenState<const A>() const { return {mean, covariance, subspace, spectrum}; }
};

/// Where activations go: memory that is there, or a function that gets it. It is called once, when the
/// scratch of the passes before is given back: scratch and result are never held together.
template <typename T>
struct Destination {
  Destination(Activations<T> there) : get([there] { return there; }) {}
  template <std::invocable GET>
  Destination(GET get) : get(std::move(get)) {}

  std::function<Activations<T>()> get;
};

namespace cuda {
/// output = diag(weight) S (input - mean) + bias. Fills the state. Weight and bias hold one number per
/// channel; null ones are one and zero.
///
/// Activations of 16 bits whose every mean is at most four deviations are multiplied as they are stored and
/// the mean's product is taken off the sum, in groups of 64: this costs no more than a factor of five in
/// the rounding of a float32 product.
template <typename T>
void whiten(const SubspaceMap& map, Activations<const T> input, const Accumulator<T>* weight,
            const Accumulator<T>* bias, const WhitenState<Accumulator<T>>& state,
            const Destination<T>& output, const Stream& stream = {});

/// dL_dinput, and dL_dweight and dL_dbias of a number per channel.
template <typename T>
void whiten_backward(const SubspaceMap& map, const SpectralRule& rule,
                     Activations<const T> dL_doutput, Activations<const T> input,
                     const Accumulator<T>* weight, const WhitenState<const Accumulator<T>>& state,
                     const Destination<T>& dL_dinput, Accumulator<T>* dL_dweight,
                     Accumulator<T>* dL_dbias, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
