#pragma once

#include <torch/types.h>

namespace keel {

struct Polar {
  torch::Tensor factor;    ///< (..., m, n), with orthonormal columns (rows for m < n)
  torch::Tensor positive;  ///< (..., n, n), symmetric, without negative eigenvalues
};

/// The polar decomposition A = factor * positive of (..., m, n) matrices. `factor` is keel::procrustes(A), with its
/// gradient. `positive` is (A^T A)^(1/2); its gradient is bounded everywhere.
Polar polar(const torch::Tensor& matrix);

/// The sum of the singular values. Its gradient is the polar factor, without the directions of vanishing values.
torch::Tensor nuclear_norm(const torch::Tensor& matrix);

}  // namespace keel
