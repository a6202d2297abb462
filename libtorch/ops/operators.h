#pragma once

// The registered operators as C++ functions.

#include "types.h"

namespace keel::ops {

inline constexpr Operator<"eigh",
                          Tensors<2>(const Tensor& matrix, StringView rule, bool descending)>
    eigh;

inline constexpr Operator<"eigvalsh", Tensor(const Tensor& matrix)> eigvalsh;

inline constexpr Operator<"eigh_backward",
                          Tensor(const Optional<Tensor>& grad_values,
                                 const Optional<Tensor>& grad_vectors, const Tensor& values,
                                 const Tensor& vectors, StringView rule)>
    eigh_backward;

inline constexpr Operator<"spectral", Tensors<4>(const Tensor& matrix, StringView function,
                                                 StringView rank, StringView rule)>
    spectral;

/// `matrix` is the input of forward. It is an argument so that second derivatives can flow to it.
inline constexpr Operator<"spectral_backward",
                          Tensor(const Tensor& grad_result, const Tensor& matrix,
                                 const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                 StringView function, StringView rank_policy, StringView rule)>
    spectral_backward;

/// The gradients of spectral_backward with respect to grad_result and matrix, for rule exact at full rank.
inline constexpr Operator<"spectral_second_backward",
                          Tensors<2>(const Tensor& grad_grad_matrix, const Tensor& grad_result,
                                     const Tensor& matrix, const Tensor& values,
                                     const Tensor& vectors, StringView function)>
    spectral_second_backward;

/// Eigenvalues, the largest first, eigenvectors, and how many of them `rank` keeps. Without derivatives.
inline constexpr Operator<"decompose", Tensors<3>(const Tensor& matrix, StringView rank)> decompose;

/// V f(values) V^H for an f of the caller's: `f`, `slope` and `curve` are f, f' and f'' at the values (..., n). Without
/// `kept` all eigenvalues are, in any order. Derivatives flow to the matrix and to the three. `terms` is that of Exact.
inline constexpr Operator<"spectral_of",
                          Tensor(const Tensor& matrix, const Tensor& values, const Tensor& vectors,
                                 const Optional<Tensor>& kept, const Tensor& f, const Tensor& slope,
                                 const Tensor& curve, std::int64_t terms)>
    spectral_of;

/// Its gradient with respect to the matrix, which is also its tangent: V (F o (V^H sym(along) V)) V^H.
inline constexpr Operator<"spectral_of_backward",
                          Tensor(const Tensor& along, const Tensor& matrix, const Tensor& values,
                                 const Tensor& vectors, const Optional<Tensor>& kept,
                                 const Tensor& f, const Tensor& slope, const Tensor& curve,
                                 std::int64_t terms)>
    spectral_of_backward;

/// Its gradients with respect to f, slope and curve. The last two are zero, but their derivatives are not.
inline constexpr Operator<"spectral_of_weights",
                          Tensors<3>(const Tensor& along, const Tensor& matrix,
                                     const Tensor& values, const Tensor& vectors,
                                     const Optional<Tensor>& kept, const Tensor& f,
                                     const Tensor& slope, const Tensor& curve, std::int64_t terms)>
    spectral_of_weights;

/// The gradients of <other, spectral_of_backward(along)> with respect to the matrix, f, slope and curve, at full rank.
inline constexpr Operator<"spectral_of_second",
                          Tensors<4>(const Tensor& other, const Tensor& along, const Tensor& matrix,
                                     const Tensor& values, const Tensor& vectors, const Tensor& f,
                                     const Tensor& slope, const Tensor& curve)>
    spectral_of_second;

/// Returns left (..., m, k), values (..., k) and right (..., k, n) with matrix = left diag(values) right.
inline constexpr Operator<"svd", Tensors<3>(const Tensor& matrix, StringView rule)> svd;

inline constexpr Operator<"svdvals", Tensor(const Tensor& matrix)> svdvals;

inline constexpr Operator<
    "svd_backward", Tensor(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                           const Optional<Tensor>& grad_right, const Tensor& left,
                           const Tensor& values, const Tensor& right, StringView rule)>
    svd_backward;

/// Returns U f(S) V^H, left, values, right, and how many values were kept.
inline constexpr Operator<"singular",
                          Tensors<5>(const Tensor& matrix, StringView function, StringView rank)>
    singular;

/// `matrix` and `result` are arguments so that second derivatives can flow to them.
inline constexpr Operator<"singular_backward",
                          Tensor(const Tensor& grad_result, const Tensor& matrix,
                                 const Tensor& result, const Tensor& left, const Tensor& values,
                                 const Tensor& right, const Tensor& kept, StringView function,
                                 StringView rank)>
    singular_backward;

/// Like decompose: left, values, right, and how many are kept.
inline constexpr Operator<"decompose_rectangles", Tensors<4>(const Tensor& matrix, StringView rank)>
    decompose_rectangles;

/// U f(S) V^H for an f of the caller's. The arguments are as in spectral_of.
inline constexpr Operator<"singular_of",
                          Tensor(const Tensor& matrix, const Tensor& left, const Tensor& values,
                                 const Tensor& right, const Optional<Tensor>& kept, const Tensor& f,
                                 const Tensor& slope, const Tensor& curve)>
    singular_of;

/// The gradients with respect to matrix, f, slope and curve. The last two are zero, but their derivatives are not.
inline constexpr Operator<"singular_of_backward",
                          Tensors<4>(const Tensor& grad_result, const Tensor& matrix,
                                     const Tensor& left, const Tensor& values, const Tensor& right,
                                     const Optional<Tensor>& kept, const Tensor& f,
                                     const Tensor& slope, const Tensor& curve)>
    singular_of_backward;

/// The nearest matrix with orthonormal columns (or rows), or with `special` the nearest rotation. Also returns what the
/// gradient needs: the singular values and V^H. With `special` the last value has the sign of the determinant.
inline constexpr Operator<"procrustes_factor", Tensors<3>(const Tensor& matrix, bool special)>
    procrustes;

/// `matrix` is an argument so that second derivatives can flow to it. `factor`, `values` and `right` are the results of
/// procrustes.
inline constexpr Operator<"procrustes_backward",
                          Tensor(const Tensor& grad_factor, const Tensor& matrix,
                                 const Tensor& factor, const Tensor& values, const Tensor& right)>
    procrustes_backward;

/// V diag(values) V^H, the symmetric or Hermitian factor of matrix = factor * result.
inline constexpr Operator<"polar_positive", Tensor(const Tensor& matrix, const Tensor& factor,
                                                   const Tensor& values, const Tensor& right)>
    polar_positive;

inline constexpr Operator<"polar_positive_backward",
                          Tensor(const Tensor& grad_positive, const Tensor& matrix,
                                 const Tensor& factor, const Tensor& values, const Tensor& right)>
    polar_positive_backward;

/// Solves Y H = rhs. With `both` it solves H Y + Y H = (rhs - rhs^H) / 2 for an antihermitian Y; with `symmetric` as well,
/// H Y + Y H = (rhs + rhs^H) / 2 for a Hermitian one. H = positive = V diag(values) V^H is a Hermitian n x n matrix. Directions
/// in which a value, or a sum of two, vanishes get 0. Differentiable to any order.
inline constexpr Operator<"positive_solve",
                          Tensor(const Tensor& rhs, const Tensor& positive, const Tensor& values,
                                 const Tensor& right, bool both, bool symmetric)>
    positive_solve;

/// The identity on `tensor`. Its derivative passes through unless_where(), so it is an error or NaN where `where` is true.
inline constexpr Operator<"without_derivative_where",
                          Tensor(const Tensor& tensor, const Tensor& where, StringView message)>
    without_derivative_where;

/// `value`, with the derivatives of `formula`. The two must be equal up to rounding.
inline constexpr Operator<"with_derivatives_of", Tensor(const Tensor& value, const Tensor& formula)>
    with_derivatives_of;

inline constexpr Operator<"moments", Tensors<2>(const Tensor& input, std::int64_t groups)> moments;

/// One float64 tensor (1 + C + C d): count, sum (input - shift), sum (input - shift)(input - shift)^T. The default shift
/// is zero.
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

/// The eigenvalues that a map uses: those of forward, but not below its eps.
Tensor raised_values(const Tensor& values, StringView map);

/// The tangent of layer_matrix for the covariance's tangent `along`: the adjoint of layer_matrix_backward.
inline constexpr Operator<"layer_matrix_tangent",
                          Tensor(const Tensor& along, const Tensor& covariance,
                                 const Tensor& layer_matrix, const Tensor& values,
                                 const Tensor& vectors, const Tensor& rank, StringView map,
                                 StringView rule)>
    layer_matrix_tangent;

/// Moves the running statistics towards the batch's, in place.
inline constexpr Operator<"running_average",
                          void(const Tensor& running_mean, const Tensor& running_matrix,
                               const Optional<Tensor>& running_variance,
                               const Tensor& num_batches_tracked, const Tensor& mean,
                               const Tensor& covariance, const Tensor& layer_matrix,
                               Optional<double> momentum, double eps)>
    running_average;

/// Returns output, mean, covariance, layer_matrix, values, vectors and rank: the output and what backward needs.
inline constexpr Operator<
    "whiten_forward", Tensors<7>(const Tensor& input, const Optional<Tensor>& weight,
                                 const Optional<Tensor>& bias, std::int64_t groups, StringView map,
                                 StringView rule, bool relu, const Optional<Tensor>& residual)>
    whiten_forward;

/// The same with the moments of all processes, which come from the sum of their partial_moments.
inline constexpr Operator<
    "whiten_apply",
    Tensors<7>(const Tensor& input, const Optional<Tensor>& weight, const Optional<Tensor>& bias,
               std::int64_t groups, const Tensor& sums, const Optional<Tensor>& shift,
               StringView map, StringView rule, bool relu, const Optional<Tensor>& residual)>
    whiten_apply;

/// The gradients of input, weight and bias. Here and below, `output` is forward's output after ReLU. Leave it out for a
/// layer without ReLU, or if grad_output is already masked by it.
inline constexpr Operator<
    "whiten_backward",
    Tensors<3>(const Tensor& grad_output, const Tensor& input, const Optional<Tensor>& weight,
               const Tensor& mean, const Tensor& covariance, const Tensor& layer_matrix,
               const Tensor& values, const Tensor& vectors, const Tensor& rank, StringView map,
               StringView rule, const Optional<Tensor>& output)>
    whiten_backward;

/// Returns the sums (C + C d) that processes add up in backward, and this process's gradients of weight and bias.
inline constexpr Operator<
    "whiten_backward_sums",
    Tensors<3>(const Tensor& grad_output, const Tensor& input, const Tensor& mean,
               const Tensor& covariance, const Tensor& layer_matrix, const Tensor& values,
               const Tensor& vectors, const Tensor& rank, const Optional<Tensor>& output)>
    whiten_backward_sums;

/// The gradient of the input. `count` (1), float64, is the number of samples of all processes.
inline constexpr Operator<
    "whiten_backward_apply",
    Tensor(const Tensor& grad_output, const Tensor& input, const Optional<Tensor>& weight,
           const Tensor& mean, const Tensor& covariance, const Tensor& layer_matrix,
           const Tensor& values, const Tensor& vectors, const Tensor& rank, const Tensor& sums,
           const Tensor& count, StringView map, StringView rule, const Optional<Tensor>& output)>
    whiten_backward_apply;

}  // namespace keel::ops
