#pragma once

// A whitening layer's training step, one call forward and one call backward: moments ->
// layer_matrix -> times the weight -> affine. If several processes share a batch, each direction
// takes two calls. Between them, what the first call wrote is summed over the processes:
//
//     partial_moments       | sum |  whiten_apply
//     whiten_backward_sums  | sum |  whiten_backward_apply
//
// The stages' contracts are in their headers. On CUDA some stages are fused here for speed.

#include <concepts>
#include <functional>
#include <utility>

#include "keel/activations.h"
#include "keel/executor.h"
#include "keel/layer_matrix.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// What forward computes from the batch for backward. This is a view: it owns nothing.
template <typename A>
struct WhitenState {
  A* mean = nullptr;         ///< channels
  Matrices<A> covariance;    ///< groups of d x d
  Matrices<A> layer_matrix;  ///< S, groups of d x d
  LayerMatrixState<A> spectrum;

  operator WhitenState<const A>() const { return {mean, covariance, layer_matrix, spectrum}; }
};

/// Where activations are written: memory, or a function that allocates it. The function is called
/// once, after the scratch memory of the earlier passes is released, so the two are never held at
/// the same time.
template <typename T>
struct Destination {
  Destination(Activations<T> there) : get([there] { return there; }) {}
  template <std::invocable GET>
  Destination(GET get) : get(std::move(get)) {}

  std::function<Activations<T>()> get;
};

/// The contract, for every backend, with A = Accumulator<T>:
///
///     output = diag(weight) S (input - mean) + bias
///
/// - Forward fills the state, and backward reads it. `weight` and `bias` hold one number per
///   channel. A null weight is one, a null bias is zero. `dL_dweight` and `dL_dbias` hold one
///   number per channel too, and are always written.
/// - NaN in a group affects only that group.
/// - ReLU after the layer is part of it: forward takes a rectified output, and backward takes
///   dL_doutput with that output as its gate. The CPU's two passes of backward read the gate as
///   well. CUDA applies it once, before them, in scratch memory of the size of dL_doutput.
///
/// With several processes:
///
/// - Mean and covariance are those of all samples. A process may have no samples. The state is the
///   same on all processes to the last bit, if the sums given to whiten_apply are.
/// - dL_dinput is the gradient of the sum of all processes' losses. dL_dweight and dL_dbias are
///   this process's share of theirs.
/// - Forward's `sums` are those of partial_moments about `shift`, over all processes. Backward's
///   `sums` are sum dL_doutput of each channel, followed by sum dL_doutput (input - mean)^T of each
///   group: C + C d numbers of type A. `count`, the first of forward's sums, is the total number of
///   samples.
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
/// 16-bit activations in groups of 16, 32 or 64 channels are multiplied as they are stored, if no
/// mean exceeds four deviations. The product of the matrix and the mean is subtracted from the result
/// afterwards. This loses at most a factor of five against the rounding of a float32 product, beside
/// that of the matrix to 16 bits (affine.h).
template <typename T>
void whiten(const LayerMap& map, Activations<const T> input, const Accumulator<T>* weight,
            const Accumulator<T>* bias, const WhitenState<Accumulator<T>>& state,
            const Destination<T>& output, const Stream& stream = {});

/// Does not wait: sums, shift and count are in device memory.
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
