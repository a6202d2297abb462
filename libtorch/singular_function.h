#pragma once

#include "keel/torch/singular.h"
#include "types.h"

namespace keel::ops {

/// How many of (..., k) singular values of m x n matrices are kept, from the largest down: (...), int64.
Tensor kept_values(const SingularFunction& function, const RankPolicy& policy, const Tensor& values,
                   double larger_side);

/// f(values), 0 for those that are not kept.
Tensor of_values(const SingularFunction& function, const Tensor& values, const Tensor& kept);

/// What the gradient of U f(S) V^T multiplies P = U^T G V by (docs/rectangular.md). Made to be computed, not differentiated.
struct SingularKernels {
  Tensor together;  ///< (..., k, k): (f_i - f_j) / (s_i - s_j), for the symmetric part
  Tensor against;   ///< (..., k, k): (f_i + f_j) / (s_i + s_j), for the antisymmetric part
  Tensor beside;    ///< (..., k): f_i / s_i, for what lies beside U or V
};
SingularKernels singular_kernels(const SingularFunction& function, const Tensor& values,
                                 const Tensor& kept);

}  // namespace keel::ops
