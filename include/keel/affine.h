#pragma once

// Stage: matrix, center, bias, activations -> output. Backward: dL_doutput -> dL_dinput. The
// gradients of matrix and bias are cross_moments (moments.h).

#include "keel/activations.h"
#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// The contract of this stage, for every backend, with A = Accumulator<T>:
///
/// - Each input is read once and the output is written once. No centred or transposed copy is made,
///   but CUDA copies a gradient that has a gate.
/// - `matrix` holds one d x d matrix per group, `center` and `bias` one number per channel. A null
///   center or bias is zero. The center is subtracted before the product, not as matrix * center
///   after it. This keeps the accuracy when |mean| >> deviation.
/// - Products and sums are in A. Only the output is rounded to T. On tensor cores, CUDA may round the
///   factors that multiply bfloat16 numbers to 16 bits. This changes a product by at most 2^-16 of
///   itself, 1/256 of what rounding the number to bfloat16 may have changed.
/// - The output of affine may have a residual and may be rectified, and dL_doutput of
///   affine_backward may have a gate (activations.h). So ReLU is part of a pass: forward
///   writes a rectified output, and backward uses that output as the gate. As in torch's ReLU, a
///   NaN gate is open. The residual is added in A, before the output is rounded.
/// - NaN or infinity in a sample affects only that sample, and only within its group. NaN or
///   infinity in dL_doutput does not pass a closed gate.
/// - Inputs and output have the same shape, groups and order. The output must not overlap an input.
/// - Results do not depend on the executor, to the last bit. Results of the two memory orders agree
///   to rounding.
/// - Any C, any d that divides C, N = 0, S = 0 and S = 1 are valid.
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

/// The gradient of affine, and of moments if the matrix depends on them, in one pass:
///     dL_dinput = matrix^T dL_doutput + (2/m) sym(dL_dcovariance) (input - mean) + (1/m) dL_dmean
/// A null dL_dcovariance or dL_dmean is zero. Without dL_dcovariance the input is not read and may
/// be empty, as for a layer in evaluation mode.
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
