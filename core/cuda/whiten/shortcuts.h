#pragma once

// Variants of the stages for whiten.cu, which knows more than their contracts require.

#include "keel/activations.h"
#include "keel/layer_matrix.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel::cuda {

/// cross_moments about the mean of `right`, given its covariance.
template <typename T>
void cross_moments_about_mean(Activations<const T> left, Activations<const T> right,
                              const Accumulator<T>* mean, Matrices<const Accumulator<T>> covariance,
                              Accumulator<T>* sum, Matrices<Accumulator<T>> cross,
                              const Stream& stream);

/// affine about the mean of `input`, given its covariance.
template <typename T>
void affine_about_mean(Matrices<const Accumulator<T>> matrix, const Accumulator<T>* mean,
                       Matrices<const Accumulator<T>> covariance, const Accumulator<T>* bias,
                       Activations<const T> input, Activations<T> output, const Stream& stream);

/// affine_backward, given the covariance of the input and a symmetric dL_dcovariance. dL_doutput
/// and the input must be older than the last kernel on the stream.
template <typename T>
void affine_backward_about_mean(Matrices<const Accumulator<T>> matrix,
                                Activations<const T> dL_doutput,
                                Matrices<const Accumulator<T>> dL_dcovariance,
                                const Accumulator<T>* dL_dmean, Activations<const T> input,
                                const Accumulator<T>* mean,
                                Matrices<const Accumulator<T>> covariance, Activations<T> dL_dinput,
                                const Stream& stream);

/// layer_matrix, and matrix = diag(weight) result. A null weight is one.
template <typename T>
void weighted_layer_matrix(const LayerMap& map, Matrices<const T> covariance, const T* weight,
                           Matrices<T> result, Matrices<T> matrix, LayerMatrixState<T> state,
                           const Stream& stream);

/// weight_backward, then layer_matrix_backward. The state, the layer's matrix and the weight must
/// be older than the last kernel on the stream.
template <typename T>
void weighted_layer_matrix_backward(const LayerMap& map, const SpectralRule& rule,
                                    Matrices<const T> covariance, LayerMatrixState<const T> state,
                                    Matrices<const T> layer_matrix, const T* weight, const T* sum,
                                    Matrices<const T> cross, T* dL_dweight, T* dL_dmean,
                                    Matrices<T> dL_dcovariance, Matrices<T> matrix,
                                    const Stream& stream);

}  // namespace keel::cuda
