#pragma once

#include <torch/types.h>

#include <cstdint>

#include "keel/layer_matrix.h"

namespace keel {

struct Whitened {
  torch::Tensor output;        ///< like the input; the only differentiable output
  torch::Tensor mean;          ///< (C)
  torch::Tensor covariance;    ///< (G, d, d), divided by the number of samples
  torch::Tensor layer_matrix;  ///< (G, d, d)
  torch::Tensor values;        ///< (G, d), eigenvalues of the map's M as found, in the order found
  torch::Tensor rank;          ///< (G), int64
  /// Whether the last kernel on the stream is newer than mean, covariance and layer_matrix, so that the next one may read
  /// them while it runs. Set it to false if you change them.
  bool settled = false;
};

/// A whitening layer's training step on (N, C, *) activations: moments, layer_matrix, affine.
///
///     output = weight * (layer_matrix (input - mean)) + bias
///
/// `weight` and `bias` (C) may be undefined. Backward reads the input again, and nothing else of the activations' size is
/// saved. Differentiable once; Zca with FullRank and Exact twice.
///
/// `residual`, of the input's shape and type, is added to the output, without intermediate rounding. Then `relu` applies
/// max(0, y), which keeps NaN, without an extra pass. Backward then saves and reads the output too, as ReLU itself does.
/// Results are bitwise those of a separate ReLU.
///
/// `masked` promises that the output's gradient is already zero wherever ReLU's output is <= 0, because the caller's
/// backward does that in a pass of its own. Then the output is neither saved nor read.
Whitened whiten(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                std::int64_t groups, const LayerMap& map, const SpectralRule& rule = Exact{},
                bool relu = false, const torch::Tensor& residual = {}, bool masked = false);

}  // namespace keel
