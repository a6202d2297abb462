#pragma once

#include <torch/types.h>

#include "keel/gradient_rule.h"

namespace keel {

struct Svd {
  torch::Tensor U;   ///< (..., m, k), k = min(m, n): column i belongs to S[..., i]
  torch::Tensor S;   ///< (..., k), descending, none negative
  torch::Tensor Vh;  ///< (..., k, n), row i belongs to S[..., i]
};

/// Singular value decomposition A = U diag(S) Vh of (..., m, n) matrices, with the gradient of `rule` (default: Masked). A
/// drop-in replacement for torch::linalg_svd(A, /*full_matrices=*/false).
///
/// - In each column of U the entry of largest magnitude is positive, or for complex matrices real and positive. The
///   gradient leaves out what only turns the phases of complex vectors.
/// - The rule bounds 1 / (s_i - s_j), and 1 / (s_i + s_j) and 1 / s_i in the same way. The default gives torch's gradient
///   where no two values, and no value and zero, are closer than 10 sqrt(k) machine epsilons times the largest. At repeated
///   values it is exact for losses that depend on their singular vectors only as a whole. keel::singular, polar and
///   procrustes are exact there.
/// - If you truncate U, S and Vh to the leading r, the gradient is still complete: it includes the dropped values.
/// - float16 and bfloat16 are computed in float32 and come back in the input's type.
/// - Differentiable to any order: the rule's own formula is differentiated. Where the default rule leaves pairs out, a
///   second derivative is an error. During CUDA graph capture and under vmap those matrices get NaN instead.
/// - A matrix with NaN or infinity gives NaN. Other matrices of the batch are not affected.
Svd svd(const torch::Tensor& matrix, const GradientRule& rule = Masked{});

/// The singular values alone. Their gradient is U diag(dL_dS) Vh. On the CPU the vectors of real matrices are computed only
/// where a gradient needs them, and without them errors are relative to the largest value.
torch::Tensor svdvals(const torch::Tensor& matrix);

}  // namespace keel
