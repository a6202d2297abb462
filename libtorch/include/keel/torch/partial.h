#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "keel/gradient_rule.h"

namespace keel {

/// A linear map (..., m, n) by its products with blocks of columns. The functions must be linear. Written in LibTorch's
/// operations, `apply` passes gradients on to the tensors that it uses.
struct LinearOperator {
  std::vector<std::int64_t> shape;
  std::function<torch::Tensor(const torch::Tensor&)> apply;  ///< (..., n, b) to (..., m, b)
  std::function<torch::Tensor(const torch::Tensor&)>
      adjoint;                                   ///< the transpose's; only svds needs it
  torch::TensorOptions options = torch::kFloat;  ///< float32 or float64, and where
};

struct PartialOptions {
  std::string which = "LM";  ///< of eigsh: "LM" largest magnitudes, "LA" largest, "SA" smallest
  double tol = 1e-12;        ///< the residual to reach, at least 20 machine epsilons
  std::int64_t steps = 0;    ///< if not 0, a fixed number of steps, which a CUDA graph can capture
  std::int64_t maxiter = 1000;
  torch::Tensor start = {};  ///< vectors to begin with: (..., n, any), for svds Vh (..., any, n)
  std::int64_t seed = 0;
  GradientRule rule = Masked{};
  bool report = false;  ///< an error if tol is not reached, unless true or `steps` is given
};

struct PartialEigh {
  torch::Tensor eigenvalues;   ///< (..., k), ascending
  torch::Tensor eigenvectors;  ///< (..., n, k)
  torch::Tensor residual;      ///< (...), the largest norm(M v - l v) over the largest magnitude
  torch::Tensor gap;  ///< (...), from the kept values to the others, as far as these are known
};

struct PartialSvd {
  torch::Tensor U;         ///< (..., m, k)
  torch::Tensor S;         ///< (..., k), descending
  torch::Tensor Vh;        ///< (..., k, n)
  torch::Tensor residual;  ///< (...), of A v - s u and A^T u - s v, over the largest value
  torch::Tensor gap;       ///< (...)
};

/// The k leading eigenpairs of large symmetric matrices (..., n, n), by products with blocks of vectors (docs/partial.md).
///
/// - Dense matrices, of which both triangles are used, sparse ones (COO or CSR), or an operator.
/// - The gradient includes the pairs of a kept and another value, without a decomposition of the whole. It is bounded
///   where two such values meet. Differentiable once, in reverse mode.
/// - float16 and bfloat16 are computed in float32. A matrix with NaN or infinity gives NaN and does not affect the others.
PartialEigh eigsh(const torch::Tensor& matrix, std::int64_t k, const PartialOptions& options = {});
PartialEigh eigsh(const LinearOperator& map, std::int64_t k, const PartialOptions& options = {});

/// The k leading singular triplets of large matrices (..., m, n), in the same ways. The matrix is never squared.
PartialSvd svds(const torch::Tensor& matrix, std::int64_t k, const PartialOptions& options = {});
PartialSvd svds(const LinearOperator& map, std::int64_t k, const PartialOptions& options = {});

}  // namespace keel
