#pragma once

// A whitening layer's training step, with one call forward and one backward: moments -> layer_matrix -> times the
// weight -> affine. Where several processes share a batch, each direction is two calls, and between them the
// numbers that the first one wrote are summed over the processes:
//
//     partial_moments       | sum |  whiten_apply
//     whiten_backward_sums  | sum |  whiten_backward_apply
//
// The stages' contracts are in their headers. On CUDA stages are fused here where that is faster.

#include <concepts>
#include <functional>
#include <utility>

#include "keel/activations.h"
#include "keel/executor.h"
#include "keel/layer_matrix.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// What forward computes from the batch and backward needs. A view: it owns nothing.
template <typename A>
struct WhitenState {
  A* mean = nullptr;         ///< channels
  Matrices<A> covariance;    ///< groups of d x d
  Matrices<A> layer_matrix;  ///< S, groups of d x d
  LayerMatrixState<A> spectrum;

  operator WhitenState<const A>() const { return {mean, covariance, layer_matrix, spectrum}; }
};

/// Where activations go: memory, or a function that allocates it. The function is called once, after the
/// scratch memory of the earlier passes has been released, so that both are never held at the same time.
template <typename T>
struct Destination {
  Destination(Activations<T> there) : get([there] { return there; }) {}
  template <std::invocable GET>
  Destination(GET get) : get(std::move(get)) {}

  std::function<Activations<T>()> get;
};

/// The contract of every backend, with A = Accumulator<T>:
///
///     output = diag(weight) S (input - mean) + bias
///
/// - Forward fills the state, and backward reads it. `weight` and `bias` hold one number per channel; null stands
///   for one and zero. `dL_dweight` and `dL_dbias` hold one number per channel too, and are always written.
/// - NaN in a group stays in it.
/// - ReLU behind the layer costs no pass of its own: forward with an output that is rectified, backward with
///   dL_doutput behind a gate, which is that output. It is read once more by both of backward's passes.
///
/// Over several processes:
///
/// - Mean and covariance are those of all samples, of which a process may have none. The state is the same on
///   all to the last bit, if the sums given to whiten_apply are.
/// - dL_dinput is the gradient of the sum of all processes' losses. dL_dweight and dL_dbias are this process's
///   share of theirs.
/// - `sums` of forward are those of partial_moments, about `shift`, of all processes. Backward's are sum
///   dL_doutput of each channel and sum dL_doutput (input - mean)^T of each group, one after another: C + C d
///   numbers of type A. `count`, the first of forward's sums, is the number of all samples.
namespace reference {
void whiten(const LayerMap& map, Activations<const double> input, const double* weight,
            const double* bias, const WhitenState<double>& state, Activations<double> output);

void whiten_backward(const LayerMap& map, const SpectralRule& rule,
                     Activations<const double> dL_doutput, Activations<const double> input,
                     const double* weight, const WhitenState<const double>& state,
                     Activations<double> dL_dinput, double* dL_dweight, double* dL_dbias);
}  // namespace reference

namespace cpu {
template <typename T>
void whiten(const LayerMap& map, Activations<const T> input, const Accumulator<T>* weight,
            const Accumulator<T>* bias, const WhitenState<Accumulator<T>>& state,
            const Destination<T>& output, const Executor& executor = serial());

template <typename T>
void whiten_apply(const LayerMap& map, Activations<const T> input, const double* sums,
                  const double* shift, const Accumulator<T>* weight, const Accumulator<T>* bias,
                  const WhitenState<Accumulator<T>>& state, const Destination<T>& output,
                  const Executor& executor = serial());

template <typename T>
void whiten_backward(const LayerMap& map, const SpectralRule& rule, Activations<const T> dL_doutput,
                     Activations<const T> input, const Accumulator<T>* weight,
                     const WhitenState<const Accumulator<T>>& state,
                     const Destination<T>& dL_dinput, Accumulator<T>* dL_dweight,
                     Accumulator<T>* dL_dbias, const Executor& executor = serial());

template <typename T>
void whiten_backward_sums(Activations<const T> dL_doutput, Activations<const T> input,
                          const WhitenState<const Accumulator<T>>& state, Accumulator<T>* sums,
                          Accumulator<T>* dL_dweight, Accumulator<T>* dL_dbias,
                          const Executor& executor = serial());

template <typename T>
void whiten_backward_apply(const LayerMap& map, const SpectralRule& rule,
                           Activations<const T> dL_doutput, Activations<const T> input,
                           const Accumulator<T>* weight,
                           const WhitenState<const Accumulator<T>>& state,
                           const Accumulator<T>* sums, const double* count,
                           const Destination<T>& dL_dinput, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// Activations of 16 bits whose every mean is at most four deviations are multiplied as they are stored and
/// the mean's product is taken off the sum, in groups of 64: this costs no more than a factor of five in
/// the rounding of a float32 product.
template <typename T>
void whiten(const LayerMap& map, Activations<const T> input, const Accumulator<T>* weight,
            const Accumulator<T>* bias, const WhitenState<Accumulator<T>>& state,
            const Destination<T>& output, const Stream& stream = {});

/// Nothing is waited for: sums, shift and count lie on the device.
template <typename T>
void whiten_apply(const LayerMap& map, Activations<const T> input, const double* sums,
                  const double* shift, const Accumulator<T>* weight, const Accumulator<T>* bias,
                  const WhitenState<Accumulator<T>>& state, const Destination<T>& output,
                  const Stream& stream = {});

template <typename T>
void whiten_backward(const LayerMap& map, const SpectralRule& rule, Activations<const T> dL_doutput,
                     Activations<const T> input, const Accumulator<T>* weight,
                     const WhitenState<const Accumulator<T>>& state,
                     const Destination<T>& dL_dinput, Accumulator<T>* dL_dweight,
                     Accumulator<T>* dL_dbias, const Stream& stream = {});

template <typename T>
void whiten_backward_sums(Activations<const T> dL_doutput, Activations<const T> input,
                          const WhitenState<const Accumulator<T>>& state, Accumulator<T>* sums,
                          Accumulator<T>* dL_dweight, Accumulator<T>* dL_dbias,
                          const Stream& stream = {});

template <typename T>
void whiten_backward_apply(const LayerMap& map, const SpectralRule& rule,
                           Activations<const T> dL_doutput, Activations<const T> input,
                           const Accumulator<T>* weight,
                           const WhitenState<const Accumulator<T>>& state,
                           const Accumulator<T>* sums, const double* count,
                           const Destination<T>& dL_dinput, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
