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

/// Symmetric eigendecomposition, eigenvalues ascending, with the gradient of `rule` (default: Masked). A drop-in
/// replacement for torch::linalg_eigh:
///
///     auto [eigenvalues, eigenvectors] = keel::eigh(M, keel::PowerIteration{.terms = 19});
///
/// - Matrices are (..., n, n), symmetric or complex Hermitian. The gradient is the symmetric dL/dM, as torch::linalg_eigh gives it.
/// - In each eigenvector the entry of largest magnitude is positive, or for complex matrices real and positive. The
///   gradient leaves out what only turns the phases of complex vectors.
/// - The default rule gives torch::linalg_eigh's gradient where no two eigenvalues are closer than
///   10 sqrt(n) machine epsilons times the largest. At repeated eigenvalues it is exact for losses that
///   depend on an eigenspace only as a whole: its projector, symmetric functions of its eigenvalues. It is
///   not exact there for functions of the matrix, V f(l) V^T, and raises no error: use keel::spectral for those.
/// - float16 and bfloat16 are computed in float32 and come back in the input's type.
/// - Differentiable to any order: a backward pass that builds a graph evaluates the rule's formula in differentiable
///   operations, so the rule is applied to its own backward.
/// - At repeated eigenvalues the default rule's second derivatives are exact where its first ones are. For other losses,
///   and in forward mode, they are an error. Third derivatives are always an error. During CUDA graph capture and under
///   vmap the matrices concerned get NaN instead. The check runs only in a second backward pass. It costs a few more
///   passes through the loss's graph and, on CUDA, a synchronisation.
/// - A matrix with NaN or infinity gives NaN values, vectors and gradients. Other matrices of the batch are not affected.
Eigh eigh(const torch::Tensor& matrix, const GradientRule& rule = Masked{},
          const EighOptions& options = {});

/// The eigenvalues alone, ascending. A drop-in replacement for torch::linalg_eigvalsh. `uplo` is the triangle that is read,
/// 'L' or 'U'.
///
/// - The gradient is V diag(dL_dl) V^T, which is finite at equal eigenvalues too.
/// - Second derivatives are those of keel::eigh: at equal eigenvalues exact for symmetric functions of them, an error for
///   others.
/// - Without a gradient, no eigenvectors are computed on the CPU, nor on CUDA from n = 2048 on. The values may then differ
///   from those of keel::eigh by rounding.
torch::Tensor eigvalsh(const torch::Tensor& matrix, char uplo = 'L');

}  // namespace keel
