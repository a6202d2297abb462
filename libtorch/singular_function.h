#pragma once

#include "divided_differences.h"
#include "keel/torch/singular.h"
#include "types.h"

namespace keel::ops {

/// How many of (..., k) singular values are kept, from the largest down, as (...) int64. `larger_side` is max(m, n).
Tensor kept_values(const SingularFunction& function, const RankPolicy& policy, const Tensor& values,
                   double larger_side);

/// f(values), and 0 for values that are not kept.
Tensor of_values(const SingularFunction& function, const Tensor& values, const Tensor& kept);

/// The factors that the gradient of U f(S) V^H applies to P = U^H G V (docs/rectangular.md). Not differentiable.
struct SingularKernels {
  Tensor together;  ///< (..., k, k): (f_i - f_j) / (s_i - s_j), for the Hermitian part
  Tensor against;   ///< (..., k, k): (f_i + f_j) / (s_i + s_j), for the antihermitian part
  Tensor beside;    ///< (..., k): f_i / s_i, for the complement of U or V
};
SingularKernels singular_kernels(const SingularFunction& function, const Tensor& values,
                                 const Tensor& kept);
/// The same for an f of the caller's. Without `kept` all values are. In the limit at zero f is taken to vanish there.
SingularKernels singular_kernels(const Jet& jet, const Tensor& values, const Tensor& kept);

}  // namespace keel::ops
