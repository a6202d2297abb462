#pragma once

#include <torch/types.h>

#include "keel/gradient_rule.h"

namespace keel {

struct Eigh {
  torch::Tensor eigenvalues;   ///< (..., n)
  torch::Tensor eigenvectors;  ///< (..., n, n), column i belongs to eigenvalues[..., i]
};

struct EighOptions {
  char uplo = 'L';          ///< the triangle that is read, 'L' or 'U'
  bool descending = false;  ///< the largest eigenvalue first
};

/// Symmetric eigendecomposition, eigenvalues ascending, with the gradient of `rule`: Masked unless another is given. Takes
/// the place of torch::linalg_eigh:
///
///     auto [eigenvalues, eigenvectors] = keel::eigh(M, keel::PowerIteration{.terms = 19});
///
/// - Matrices are (..., n, n). The gradient is the symmetric dL/dM, as torch::linalg_eigh gives it.
/// - In each eigenvector the entry of largest magnitude is positive.
/// - The default rule equals torch::linalg_eigh's gradient where no two eigenvalues are closer than
///   10 sqrt(n) machine epsilons of the largest. At
///   repeated eigenvalues it stays exact for losses that see an eigenspace only as a whole: its
///   projector, symmetric functions of its eigenvalues. Functions of matrices V f(l) V^T ask for more
///   there, and what they ask for is left out, without an error; keel::spectral has it.
/// - float16 and bfloat16 are computed in float32 and come back in the input's type.
/// - Differentiable to any order: a backward pass that builds a graph states the rule's own
///   formula in differentiable operations, so the rule is applied to its own backward.
/// - At repeated eigenvalues the default rule's second derivatives are exact where its first ones
///   are, and an error for other losses; third ones are an error. While a CUDA graph is captured and under
///   vmap, where no number can be looked at, what would be an error is NaN, for the matrices alone that it is
///   about. Finding out costs a few more passes through the loss's graph and, on CUDA, a wait. Only a
///   second backward pass does so.
/// - A matrix with NaN or infinity gives NaN values, vectors and gradients, for itself alone.
Eigh eigh(const torch::Tensor& matrix, const GradientRule& rule = Masked{},
          const EighOptions& options = {});

}  // namespace keel
