#pragma once

#include <torch/types.h>

namespace keel {

struct Registration {
  torch::Tensor rotation;     ///< (..., d, d), of determinant 1
  torch::Tensor translation;  ///< (..., d)
  torch::Tensor scale;        ///< (...), ones without `scale`
};

/// The rigid motion that maps the points P (..., N, d) to Q (..., N, d) with the least weighted sum of squares:
/// Q_i ~ scale rotation P_i + translation. Never a reflection.
///
/// - `weights` (..., N) may be zero, and a negative one gives NaN; undefined means equal weights. Only their ratios matter.
/// - The dimensions before N broadcast.
/// - With `scale` the best factor is found too (Umeyama). It is 1 where all points of P coincide.
/// - Scale-free: P, Q and weights may be of any size, even where their squares overflow or underflow.
/// - All three outputs have gradients with respect to P, Q and weights, as exact as those of special_procrustes. If the points
///   do not determine the rotation (all on a line, for example), the result is one that fits, with a finite gradient.
Registration kabsch(const torch::Tensor& P, const torch::Tensor& Q,
                    const torch::Tensor& weights = {}, bool scale = false);

}  // namespace keel
