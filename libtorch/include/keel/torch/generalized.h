#pragma once

#include <torch/types.h>

#include <optional>

#include "keel/spectral.h"

namespace keel {

struct GeneralizedEigh {
  torch::Tensor eigenvalues;   ///< (..., n)
  torch::Tensor eigenvectors;  ///< (..., n, n): column i is x with A x = l_i B x; X^T B X = I
  torch::Tensor kept;          ///< (...), int64: how many directions B sees
};

/// A x = l B x for symmetric (..., n, n) matrices A and positive definite B, eigenvalues ascending, with the gradient of
/// `rule` to both. Batch dimensions are broadcast.
///
/// - Without `rtol`, B is factored by Cholesky, and a B that is not positive definite gives NaN. The eigenvalues' error is
///   some machine epsilons times |A| |B^-1|.
/// - With `rtol`, directions in which B has an eigenvalue of at most rtol times its largest are dropped: they come last, with
///   zeros for eigenvalues and vectors, and `kept` counts the others. The error is some epsilons times |A| / (rtol |B|).
///   Takes about twice as long. Differentiable once.
/// - float16 and bfloat16 are computed in float32.
GeneralizedEigh generalized_eigh(const torch::Tensor& matrix, const torch::Tensor& metric,
                                 const GradientRule& rule = Masked{},
                                 std::optional<double> rtol = std::nullopt,
                                 bool descending = false);

/// The sum of x x^T over the leading eigenvectors that `rank` keeps, X_r X_r^T. Its gradient has no pole at repeated
/// eigenvalues. Times B it is the projector onto their span, orthogonal in B's inner product.
torch::Tensor generalized_projector(const torch::Tensor& matrix, const torch::Tensor& metric,
                                    const RankPolicy& rank, const SpectralRule& rule = Exact{},
                                    std::optional<double> rtol = std::nullopt);

}  // namespace keel
