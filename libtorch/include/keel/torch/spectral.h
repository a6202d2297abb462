#pragma once

#include <torch/types.h>

#include <functional>

#include "keel/spectral.h"

namespace keel {

struct Spectral {
  torch::Tensor result;  ///< (..., n, n), V_r f(values_r) V_r^T
  torch::Tensor kept;    ///< (...), int64: how many eigenvalues were kept, from the largest down
};

/// A function of symmetric (..., n, n) matrices, over all eigenvalues or those that `rank` keeps. Only the lower triangle
/// is read. The gradient is exact unless another rule is given.
///
/// - The gradient is the symmetric dL/dM.
/// - `Exact` has no pole at repeated eigenvalues. At full rank it can be differentiated twice; other rules, and ranks below
///   full, once. A higher derivative is an error, never a wrong number.
/// - If f is undefined at a kept eigenvalue, the matrix's result is NaN.
Spectral spectral(const torch::Tensor& matrix, const SpectralFunction& function,
                  const RankPolicy& rank = FullRank{}, const SpectralRule& rule = Exact{});

/// A function of your own: it maps eigenvalues (..., n) to as many values, entry by entry, by differentiable torch operations.
/// One that mixes entries is an error if the matrix needs a gradient. On CUDA, where the host would wait, it is not noticed.
/// It is called with the kept eigenvalues alone (others are replaced by the largest).
using ElementwiseFunction = std::function<torch::Tensor(const torch::Tensor&)>;

/// The same for a function of your own, whose own parameters get gradients too:
///
///     auto found = keel::spectral(M, [&](const torch::Tensor& l) { return l.pow(exponent); });
///
/// - At full rank it can be differentiated twice, in reverse mode.
Spectral spectral(const torch::Tensor& matrix, const ElementwiseFunction& function,
                  const RankPolicy& rank = FullRank{}, const Exact& rule = {});

/// spectral() by name, at full rank. These too read only the lower triangle of symmetric matrices; for other matrices
/// there is torch::matrix_exp.
torch::Tensor sqrtm(const torch::Tensor& matrix, const SpectralRule& rule = Exact{});
torch::Tensor inv_sqrtm(const torch::Tensor& matrix, const SpectralRule& rule = Exact{});
torch::Tensor invm(const torch::Tensor& matrix, const SpectralRule& rule = Exact{});
torch::Tensor logm(const torch::Tensor& matrix, const SpectralRule& rule = Exact{});
torch::Tensor expm(const torch::Tensor& matrix, const SpectralRule& rule = Exact{});
torch::Tensor powm(const torch::Tensor& matrix, double exponent,
                   const SpectralRule& rule = Exact{});

/// The orthogonal projector onto the leading eigenvectors that `rank` keeps.
torch::Tensor projector(const torch::Tensor& matrix, const RankPolicy& rank,
                        const SpectralRule& rule = Exact{});

}  // namespace keel
