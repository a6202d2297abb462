#pragma once

// The registered operators as C++ functions.

#include "types.h"

namespace keel::ops {

inline constexpr Operator<"eigh",
                          Tensors<2>(const Tensor& matrix, StringView rule, bool descending)>
    eigh;

inline constexpr Operator<"eigh_backward",
                          Tensor(const Optional<Tensor>& grad_values,
                                 const Optional<Tensor>& grad_vectors, const Tensor& values,
                                 const Tensor& vectors, StringView rule)>
    eigh_backward;

inline constexpr Operator<"spectral", Tensors<4>(const Tensor& matrix, StringView function,
                                                 StringView rank, StringView rule)>
    spectral;

/// `matrix` is what the result was made from: it ties second derivatives to it.
inline constexpr Operator<"spectral_backward",
                          Tensor(const Tensor& grad_result, const Tensor& matrix,
                                 const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                 StringView function, StringView rank_policy, StringView rule)>
    spectral_backward;

/// The gradients with respect to grad_result and matrix of spectral_backward (exact, full rank).
inline constexpr Operator<"spectral_second_backward",
                          Tensors<2>(const Tensor& grad_grad_matrix, const Tensor& grad_result,
                                     const Tensor& matrix, const Tensor& values,
                                     const Tensor& vectors, StringView function)>
    spectral_second_backward;

/// left (..., m, k), values (..., k) and right (..., k, n) with matrix = left diag(values) right.
inline constexpr Operator<"svd", Tensors<3>(const Tensor& matrix, StringView rule)> svd;

inline constexpr Operator<
    "svd_backward", Tensor(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                           const Optional<Tensor>& grad_right, const Tensor& left,
                           const Tensor& values, const Tensor& right, StringView rule)>
    svd_backward;

/// U f(S) V^T, then left, values, right and how many values are kept.
inline constexpr Operator<"singular",
                          Tensors<5>(const Tensor& matrix, StringView function, StringView rank)>
    singular;

/// `matrix` and `result` tie second derivatives to them.
inline constexpr Operator<"singular_backward",
                          Tensor(const Tensor& grad_result, const Tensor& matrix,
                                 const Tensor& result, const Tensor& left, const Tensor& values,
                                 const Tensor& right, const Tensor& kept, StringView function,
                                 StringView rank)>
    singular_backward;

/// The nearest matrix with orthonormal columns (or rows), `special`: the nearest rotation, and for the gradient the singular
/// values and right vectors V^T. `special` lets the last value carry the sign of the determinant.
inline constexpr Operator<"procrustes_factor", Tensors<3>(const Tensor& matrix, bool special)>
    procrustes;

/// `matrix` ties second derivatives to it; `factor`, `values` and `right` are what procrustes made of it.
inline constexpr Operator<"procrustes_backward",
                          Tensor(const Tensor& grad_factor, const Tensor& matrix,
                                 const Tensor& factor, const Tensor& values, const Tensor& right)>
    procrustes_backward;

/// V diag(values) V^T, the symmetric factor of matrix = factor * result.
inline constexpr Operator<"polar_positive", Tensor(const Tensor& matrix, const Tensor& factor,
                                                   const Tensor& values, const Tensor& right)>
    polar_positive;

inline constexpr Operator<"polar_positive_backward",
                          Tensor(const Tensor& grad_positive, const Tensor& matrix,
                                 const Tensor& factor, const Tensor& values, const Tensor& right)>
    polar_positive_backward;

/// Y with Y H = rhs or, `both`, the antisymmetric Y with H Y + Y H = (rhs - rhs^T) / 2, or if `symmetric` the symmetric one with
/// (rhs + rhs^T) / 2, where H = positive = V diag(values) V^T is symmetric, of n x n. Where a value or a sum of two vanishes the
/// answer is 0. Differentiable to any order.
inline constexpr Operator<"positive_solve",
                          Tensor(const Tensor& rhs, const Tensor& positive, const Tensor& values,
                                 const Tensor& right, bool both, bool symmetric)>
    positive_solve;

/// `tensor` itself, whose derivative is unless_where() of what comes.
inline constexpr Operator<"without_derivative_where",
                          Tensor(const Tensor& tensor, const Tensor& where, StringView message)>
    without_derivative_where;

/// `value` itself, with the derivatives of `formula`, which is the same but for rounding.
inline constexpr Operator<"with_derivatives_of", Tensor(const Tensor& value, const Tensor& formula)>
    with_derivatives_of;

inline constexpr Operator<"moments", Tensors<2>(const Tensor& input, std::int64_t groups)> moments;

/// One float64 tensor (1 + C + C d): count, sum (input - shift), sum (input - shift)(input - shift)^T.
/// No shift is zero.
inline constexpr Operator<"partial_moments", Tensor(const Tensor& input, std::int64_t groups,
                                                    const Optional<Tensor>& shift)>
    partial_moments;

/// sum (C) of left, and cross (G, d, d) = sum left (right - center)^T, over all samples.
inline constexpr Operator<"cross_moments",
                          Tensors<2>(const Tensor& left, const Tensor& right,
                                     const Optional<Tensor>& center, std::int64_t groups)>
    cross_moments;

struct Affine
    : Operator<"affine",
               Tensor(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
                      const Optional<Tensor>& bias, bool relu, const Optional<Tensor>& residual)> {
  using Operator::operator();
  Tensor operator()(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
                    const Optional<Tensor>& bias) const {
    return (*this)(input, matrix, center, bias, /*relu=*/false, /*residual=*/{});
  }
};
inline constexpr Affine affine;

inline constexpr Operator<"layer_matrix",
                          Tensors<4>(const Tensor& covariance, StringView map, StringView rule)>
    layer_matrix;

inline constexpr Operator<"layer_matrix_backward",
                          Tensor(const Tensor& grad_layer_matrix, const Tensor& covariance,
                                 const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                 StringView map, StringView rule)>
    layer_matrix_backward;

/// Whether a map from covariance to matrix has a second derivative.
bool is_twice_differentiable(StringView map, StringView rule);

/// How layer_matrix moves where the covariance moves along a matrix: the adjoint of layer_matrix_backward.
inline constexpr Operator<"layer_matrix_tangent",
                          Tensor(const Tensor& along, const Tensor& covariance,
                                 const Tensor& layer_matrix, const Tensor& values,
                                 const Tensor& vectors, const Tensor& rank, StringView map,
                                 StringView rule)>
    layer_matrix_tangent;

/// Moves the running statistics, which are written in place, towards the batch's.
inline constexpr Operator<"running_average",
                          void(const Tensor& running_mean, const Tensor& running_matrix,
                               const Optional<Tensor>& running_variance,
                               const Tensor& num_batches_tracked, const Tensor& mean,
                               const Tensor& covariance, const Tensor& layer_matrix,
                               Optional<double> momentum, double eps)>
    running_average;

/// output, mean, covariance, layer_matrix, values, vectors, rank: all that backward needs.
inline constexpr Operator<
    "whiten_forward", Tensors<7>(const Tensor& input, const Optional<Tensor>& weight,
                                 const Optional<Tensor>& bias, std::int64_t groups, StringView map,
                                 StringView rule, bool relu, const Optional<Tensor>& residual)>
    whiten_forward;

/// The same with the moments of all processes, out of the sum of their partial_moments.
inline constexpr Operator<
    "whiten_apply",
    Tensors<7>(const Tensor& input, const Optional<Tensor>& weight, const Optional<Tensor>& bias,
               std::int64_t groups, const Tensor& sums, const Optional<Tensor>& shift,
               StringView map, StringView rule, bool relu, const Optional<Tensor>& residual)>
    whiten_apply;

/// The gradients of input, weight and bias. Here and below `output` is what forward gave with ReLU, and nothing
/// without, or where grad_output is that of the number before ReLU already.
inline constexpr Operator<
    "whiten_backward",
    Tensors<3>(const Tensor& grad_output, const Tensor& input, const Optional<Tensor>& weight,
               const Tensor& mean, const Tensor& covariance, const Tensor& layer_matrix,
               const Tensor& values, const Tensor& vectors, const Tensor& rank, StringView map,
               StringView rule, const Optional<Tensor>& output)>
    whiten_backward;

/// What processes add up in backward (C + C d), and this one's gradients of weight and bias.
inline constexpr Operator<
    "whiten_backward_sums",
    Tensors<3>(const Tensor& grad_output, const Tensor& input, const Tensor& mean,
               const Tensor& covariance, const Tensor& layer_matrix, const Tensor& values,
               const Tensor& vectors, const Tensor& rank, const Optional<Tensor>& output)>
    whiten_backward_sums;

/// The gradient of the input. `count` (1), float64, is the number of all processes' samples.
inline constexpr Operator<
    "whiten_backward_apply",
    Tensor(const Tensor& grad_output, const Tensor& input, const Optional<Tensor>& weight,
           const Tensor& mean, const Tensor& covariance, const Tensor& layer_matrix,
           const Tensor& values, const Tensor& vectors, const Tensor& rank, const Tensor& sums,
           const Tensor& count, StringView map, StringView rule, const Optional<Tensor>& output)>
    whiten_backward_apply;

}  // namespace keel::ops
