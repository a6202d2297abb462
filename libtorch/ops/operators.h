#pragma once

// The registered operators as C++ functions: each call goes through LibTorch's dispatcher, which
// picks the autograd layer, the device's kernel or the shape function.

#include <tuple>

#include "types.h"

namespace keel::ops {

std::tuple<Tensor, Tensor> eigh(const Tensor& matrix, StringView rule, bool descending);

Tensor eigh_backward(const Optional<Tensor>& grad_values, const Optional<Tensor>& grad_vectors,
                     const Tensor& values, const Tensor& vectors, StringView rule);

std::tuple<Tensor, Tensor, Tensor, Tensor> spectral(const Tensor& matrix, StringView function,
                                                    StringView rank, StringView rule);

/// `matrix` is what the result was made from: it ties second derivatives to it.
Tensor spectral_backward(const Tensor& grad_result, const Tensor& matrix, const Tensor& values,
                         const Tensor& vectors, const Tensor& rank, StringView function,
                         StringView rank_policy, StringView rule);

/// The gradients with respect to grad_result and matrix of spectral_backward (exact, full rank).
std::tuple<Tensor, Tensor> spectral_second_backward(const Tensor& grad_grad_matrix,
                                                    const Tensor& grad_result, const Tensor& matrix,
                                                    const Tensor& values, const Tensor& vectors,
                                                    StringView function);

/// left (..., m, k), values (..., k) and right (..., k, n) with matrix = left diag(values) right. Call it as ops::svd: at::svd is
/// found by its argument too, and takes a text for a bool.
std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& matrix, StringView rule);

Tensor svd_backward(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                    const Optional<Tensor>& grad_right, const Tensor& left, const Tensor& values,
                    const Tensor& right, StringView rule);

/// U f(S) V^T, then left, values, right and how many values are kept.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> singular(const Tensor& matrix,
                                                            StringView function, StringView rank);

/// `matrix` and `result` tie second derivatives to them.
Tensor singular_backward(const Tensor& grad_result, const Tensor& matrix, const Tensor& result,
                         const Tensor& left, const Tensor& values, const Tensor& right,
                         const Tensor& kept, StringView function, StringView rank);

/// The nearest matrix with orthonormal columns (or rows), `special`: the nearest rotation, and for the gradient the singular
/// values and right vectors V^T. `special` lets the last value carry the sign of the determinant.
std::tuple<Tensor, Tensor, Tensor> procrustes(const Tensor& matrix, bool special);

/// `matrix` ties second derivatives to it; `factor`, `values` and `right` are what procrustes made of it.
Tensor procrustes_backward(const Tensor& grad_factor, const Tensor& matrix, const Tensor& factor,
                           const Tensor& values, const Tensor& right);

/// V diag(values) V^T, the symmetric factor of matrix = factor * result.
Tensor polar_positive(const Tensor& matrix, const Tensor& factor, const Tensor& values,
                      const Tensor& right);

Tensor polar_positive_backward(const Tensor& grad_positive, const Tensor& matrix,
                               const Tensor& factor, const Tensor& values, const Tensor& right);

/// Y with Y H = rhs or, `both`, the antisymmetric Y with H Y + Y H = (rhs - rhs^T) / 2, where H = positive = V diag(values) V^T
/// is symmetric, of n x n. Where a value or a sum of two vanishes the answer is 0. Differentiable to any order.
Tensor positive_solve(const Tensor& rhs, const Tensor& positive, const Tensor& values,
                      const Tensor& right, bool both);

/// `tensor` (..., *) itself. Where `where` (...) is true it has no derivative: that is an error with this message, or NaN
/// for those entries where nobody can wait to see which.
Tensor without_derivative_where(const Tensor& tensor, const Tensor& where, StringView message);

std::tuple<Tensor, Tensor> moments(const Tensor& input, std::int64_t groups);

/// One float64 tensor (1 + C + C d): count, sum (input - shift), sum (input - shift)(input - shift)^T.
/// No shift is zero.
Tensor partial_moments(const Tensor& input, std::int64_t groups, const Optional<Tensor>& shift);

/// sum (C) of left, and cross (G, d, d) = sum left (right - center)^T, over all samples.
std::tuple<Tensor, Tensor> cross_moments(const Tensor& left, const Tensor& right,
                                         const Optional<Tensor>& center, std::int64_t groups);

Tensor affine(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
              const Optional<Tensor>& bias, bool relu = false,
              const Optional<Tensor>& residual = {});

std::tuple<Tensor, Tensor, Tensor, Tensor> layer_matrix(const Tensor& covariance, StringView map,
                                                        StringView rule);

Tensor layer_matrix_backward(const Tensor& grad_layer_matrix, const Tensor& covariance,
                             const Tensor& values, const Tensor& vectors, const Tensor& rank,
                             StringView map, StringView rule);

/// Whether a map from covariance to matrix has a second derivative.
bool is_twice_differentiable(StringView map, StringView rule);

/// How layer_matrix moves where the covariance moves along a matrix: the adjoint of layer_matrix_backward.
Tensor layer_matrix_tangent(const Tensor& along, const Tensor& covariance,
                            const Tensor& layer_matrix, const Tensor& values, const Tensor& vectors,
                            const Tensor& rank, StringView map, StringView rule);

/// Moves the running statistics, which are written in place, towards the batch's.
void running_average(const Tensor& running_mean, const Tensor& running_matrix,
                     const Optional<Tensor>& running_variance, const Tensor& num_batches_tracked,
                     const Tensor& mean, const Tensor& covariance, const Tensor& layer_matrix,
                     Optional<double> momentum, double eps);

/// output, mean, covariance, layer_matrix, values, vectors, rank: all that backward needs.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> whiten_forward(
    const Tensor& input, const Optional<Tensor>& weight, const Optional<Tensor>& bias,
    std::int64_t groups, StringView map, StringView rule, bool relu,
    const Optional<Tensor>& residual);

/// The same with the moments of all processes, out of the sum of their partial_moments.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> whiten_apply(
    const Tensor& input, const Optional<Tensor>& weight, const Optional<Tensor>& bias,
    std::int64_t groups, const Tensor& sums, const Optional<Tensor>& shift, StringView map,
    StringView rule, bool relu, const Optional<Tensor>& residual);

/// The gradients of input, weight and bias. Here and below `output` is what forward gave with ReLU, and nothing
/// without, or where grad_output is that of the number before ReLU already.
std::tuple<Tensor, Tensor, Tensor> whiten_backward(const Tensor& grad_output, const Tensor& input,
                                                   const Optional<Tensor>& weight,
                                                   const Tensor& mean, const Tensor& covariance,
                                                   const Tensor& layer_matrix, const Tensor& values,
                                                   const Tensor& vectors, const Tensor& rank,
                                                   StringView map, StringView rule,
                                                   const Optional<Tensor>& output);

/// What processes add up in backward (C + C d), and this one's gradients of weight and bias.
std::tuple<Tensor, Tensor, Tensor> whiten_backward_sums(
    const Tensor& grad_output, const Tensor& input, const Tensor& mean, const Tensor& covariance,
    const Tensor& layer_matrix, const Tensor& values, const Tensor& vectors, const Tensor& rank,
    const Optional<Tensor>& output);

/// The gradient of the input. `count` (1), float64, is the number of all processes' samples.
Tensor whiten_backward_apply(const Tensor& grad_output, const Tensor& input,
                             const Optional<Tensor>& weight, const Tensor& mean,
                             const Tensor& covariance, const Tensor& layer_matrix,
                             const Tensor& values, const Tensor& vectors, const Tensor& rank,
                             const Tensor& sums, const Tensor& count, StringView map,
                             StringView rule, const Optional<Tensor>& output);

}  // namespace keel::ops
