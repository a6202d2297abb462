#pragma once

#include <torch/types.h>

#include "keel/spectral.h"

namespace keel {

struct Spectral {
  torch::Tensor result;   ///< (..., n, n), V_r f(values_r) V_r^T: the only differentiable output
  torch::Tensor values;   ///< (..., n), descending
  torch::Tensor vectors;  ///< (..., n, n)
  torch::Tensor rank;     ///< (...), int64: how many leading eigenvalues were kept
};

/// A function of symmetric (..., n, n) matrices, over all eigenvalues or those `policy` keeps.
///
/// - The lower triangle is read; the gradient is the symmetric dL/dM.
/// - `Exact` has no pole at repeated eigenvalues. At full rank it can be differentiated twice;
///   other rules and rank cuts once. A derivative that is not there is an error, never a wrong
///   number.
/// - Where f is not defined at a kept eigenvalue the matrix's result is NaN.
Spectral spectral(const torch::Tensor& matrix, const SpectralFunction& function,
                  const RankPolicy& policy = FullRank{}, const SpectralRule& rule = Exact{});

torch::Tensor sqrtm(const torch::Tensor& matrix, const SpectralRule& rule = Exact{});
torch::Tensor inv_sqrtm(const torch::Tensor& matrix, const SpectralRule& rule = Exact{});
torch::Tensor invm(const torch::Tensor& matrix, const SpectralRule& rule = Exact{});
torch::Tensor logm(const torch::Tensor& matrix, const SpectralRule& rule = Exact{});
torch::Tensor expm(const torch::Tensor& matrix, const SpectralRule& rule = Exact{});
torch::Tensor powm(const torch::Tensor& matrix, double exponent,
                   const SpectralRule& rule = Exact{});

/// The orthogonal projector on the leading eigenvectors that `policy` keeps.
torch::Tensor projector(const torch::Tensor& matrix, const RankPolicy& policy,
                        const SpectralRule& rule = Exact{});

}  // namespace keel
