#pragma once

// The registered operators as C++ functions: each call goes through LibTorch's dispatcher, which
// picks the autograd layer, the device's kernel or the shape function.

#include <tuple>

#include "types.h"

namespace keel::ops {

std::tuple<Tensor, Tensor> eigh(const Tensor& matrix, StringView rule);

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

std::tuple<Tensor, Tensor> moments(const Tensor& input, std::int64_t groups);

/// One float64 tensor (1 + C + C d): count, sum (input - shift), sum (input - shift)(input - shift)^T.
/// No shift is zero.
Tensor partial_moments(const Tensor& input, std::int64_t groups, const Optional<Tensor>& shift);

/// Mean and covariance out of such sums, or the sums of such sums.
std::tuple<Tensor, Tensor> moments_from_partial(const Tensor& partial, std::int64_t channels,
                                                std::int64_t groups, const Optional<Tensor>& shift,
                                                Optional<at::ScalarType> type);

/// sum (C) of left, and cross (G, d, d) = sum left (right - center)^T, over all samples.
std::tuple<Tensor, Tensor> cross_moments(const Tensor& left, const Tensor& right,
                                         const Optional<Tensor>& center, std::int64_t groups);

Tensor affine(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
              const Optional<Tensor>& bias);

/// The way back through affine and the moments its matrix was made of, in one pass.
Tensor affine_backward(const Tensor& grad_output, const Tensor& matrix,
                       const Tensor& grad_covariance, const Tensor& grad_mean, const Tensor& input,
                       const Tensor& mean);

std::tuple<Tensor, Tensor, Tensor, Tensor> subspace(const Tensor& covariance, StringView map,
                                                    StringView rule);

Tensor subspace_backward(const Tensor& grad_subspace, const Tensor& covariance,
                         const Tensor& values, const Tensor& vectors, const Tensor& rank,
                         StringView map, StringView rule);

/// The gradients of weight, mean and subspace, and the matrix diag(weight) subspace.
std::tuple<Tensor, Tensor, Tensor, Tensor> scale_backward(const Optional<Tensor>& weight,
                                                          const Tensor& subspace, const Tensor& sum,
                                                          const Tensor& cross);

/// Moves the running statistics, which are written in place, towards the batch's.
void track(const Tensor& running_mean, const Tensor& running_subspace,
           const Optional<Tensor>& running_variance, const Tensor& num_batches_tracked,
           const Tensor& mean, const Tensor& covariance, const Tensor& subspace,
           Optional<double> momentum, double eps);

/// output, mean, variance, subspace, rank.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> whiten(const Tensor& input,
                                                          const Optional<Tensor>& weight,
                                                          const Optional<Tensor>& bias,
                                                          std::int64_t groups, StringView map,
                                                          StringView rule);

/// output, mean, covariance, subspace, values, vectors, rank: all that backward needs.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> whiten_forward(
    const Tensor& input, const Optional<Tensor>& weight, const Optional<Tensor>& bias,
    std::int64_t groups, StringView map, StringView rule);

/// The gradients of input, weight and bias.
std::tuple<Tensor, Tensor, Tensor> whiten_backward(const Tensor& grad_output, const Tensor& input,
                                                   const Optional<Tensor>& weight,
                                                   const Tensor& mean, const Tensor& covariance,
                                                   const Tensor& subspace, const Tensor& values,
                                                   const Tensor& vectors, const Tensor& rank,
                                                   StringView map, StringView rule);

}  // namespace keel::ops
