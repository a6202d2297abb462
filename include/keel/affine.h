#pragma once

// Stage: matrix, center, bias, activations -> output. Backward: dL_doutput -> dL_dinput here; the
// gradients of matrix and bias are cross_moments in moments.h.

#include "keel/activations.h"
#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// The contract of the stage, for every backend, with A = Accumulator<T>:
///
/// - Each input is read once and the output written once, no centred or transposed copy of
///   either.
/// - `matrix` holds one d x d matrix per group, `center` and `bias` one number per channel; a
///   null center or bias is zero. The center is subtracted before the product (and not matrix *
///   center after it), which keeps accuracy when |mean| >> deviation.
/// - Products and sums are in A; only the output is rounded to T.
/// - affine's output may have a residual and be rectified, and affine_backward's dL_doutput may have a gate (activations.h): ReLU
///   forward, and backward with what it wrote as the gate, without a pass of its own. What is left of dL_doutput
///   is what torch's ReLU leaves: a gate of NaN is open. A residual is added in A, before the output is rounded.
/// - NaN or infinity in a sample reaches that sample of its own group and nothing else; none in dL_doutput
///   passes a closed gate.
/// - Inputs and output have the same shape, groups and order. The output must not overlap an
///   input.
/// - Results do not depend on the executor, to the last bit. Orders agree to rounding.
/// - Any C, any d that divides it, N = 0, S = 0 and S = 1 are valid.
/// - Temporary memory: O(threads * tile + C * d).
namespace reference {
void affine(Matrices<const double> matrix, const double* center, const double* bias,
            Activations<const double> input, Activations<double> output);
void affine_backward(Matrices<const double> matrix, Activations<const double> dL_doutput,
                     Matrices<const double> dL_dcovariance, const double* dL_dmean,
                     Activations<const double> input, const double* mean,
                     Activations<double> dL_dinput);
}  // namespace reference

namespace cpu {
/// output = matrix (input - center) + bias, group by group.
template <typename T>
void affine(Matrices<const Accumulator<T>> matrix, const Accumulator<T>* center,
            const Accumulator<T>* bias, Activations<const T> input, Activations<T> output,
            const Executor& executor = serial());

/// The gradient of affine, and of moments if the matrix came from them, in one pass:
///     dL_dinput = matrix^T dL_doutput + (2/m) sym(dL_dcovariance) (input - mean) + (1/m) dL_dmean
/// A null dL_dcovariance or dL_dmean is zero; without dL_dcovariance the input is not read and may
/// be empty (a layer in evaluation).
template <typename T>
void affine_backward(Matrices<const Accumulator<T>> matrix, Activations<const T> dL_doutput,
                     Matrices<const Accumulator<T>> dL_dcovariance, const Accumulator<T>* dL_dmean,
                     Activations<const T> input, const Accumulator<T>* mean,
                     Activations<T> dL_dinput, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
template <typename T>
void affine(Matrices<const Accumulator<T>> matrix, const Accumulator<T>* center,
            const Accumulator<T>* bias, Activations<const T> input, Activations<T> output,
            const Stream& stream = {});

template <typename T>
void affine_backward(Matrices<const Accumulator<T>> matrix, Activations<const T> dL_doutput,
                     Matrices<const Accumulator<T>> dL_dcovariance, const Accumulator<T>* dL_dmean,
                     Activations<const T> input, const Accumulator<T>* mean,
                     Activations<T> dL_dinput, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
