#pragma once

#include <torch/types.h>

namespace keel {

struct Registration {
  torch::Tensor rotation;     ///< (..., d, d), of determinant 1
  torch::Tensor translation;  ///< (..., d)
  torch::Tensor scale;        ///< (...); ones unless asked for
};

/// The rigid motion that takes the points P (..., N, d) to Q (..., N, d) with the least weighted sum of squares: Q_i ~ scale
/// rotation P_i + translation. Never a mirror.
///
/// - `weights` (..., N), none negative, may hold zeros; undefined means all alike. Only their ratios matter.
/// - With `scale` the best factor comes too (Umeyama). It is 1 where all points of P coincide.
/// - Scale-free: P, Q and weights may each be of any size, also where their squares are no numbers of the type.
/// - All three outputs have gradients with respect to P, Q and weights, as exact as those of special_procrustes, which finds
///   the rotation: points that leave it open (all on a line) get one of those that fit, and a finite gradient.
Registration kabsch(const torch::Tensor& P, const torch::Tensor& Q,
                    const torch::Tensor& weights = {}, bool scale = false);

}  // namespace keel
