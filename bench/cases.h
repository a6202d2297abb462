#pragma once

#include "report.h"

namespace keel::bench {

/// The activations that layers and stages are timed on: (32, 64, 32, 32).
inline constexpr std::int64_t kBatch = 32, kChannels = 64, kSide = 32;

/// Registers eigh forward and forward + backward for keel, torch.linalg.eigh and Eigen.
void register_eigh();

/// Registers svd forward, and polar factors and rotations forward + backward, for keel and torch.linalg.svd.
void register_svd();

/// Registers the layers' forward + backward on (32, 64, 32, 32), BatchNorm2d and the same ZCA layer written
/// with torch's operators beside them.
void register_layers();

/// Registers the core's stages one by one on (32, 64, 32, 32): where a layer's time goes.
void register_stages();

/// Residual and orthogonality of keel and LAPACK on the same matrices; prints a table.
std::vector<AccuracyRow> eigh_accuracy();
std::vector<AccuracyRow> svd_accuracy();

}  // namespace keel::bench
