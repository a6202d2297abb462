#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace keel::cli {

struct InspectedMatrixOptions {
  std::string layer;  ///< its name in the network; empty: the first one under test
  std::int64_t group = 0;
  std::optional<double> eps;   ///< empty: the layer's own, 0 for .npy files
  std::int64_t images = 1024;  ///< checkpoints: how many go through the network
};

struct InspectedMatrix {
  torch::Tensor matrix;  ///< (n, n) float64: what the layer would decompose
  std::string description;
};

/// From a .npy file, from the spectrum.json of a run folder, or from a checkpoint: then the covariance
/// is computed from the checkpoint's own data, with the network in evaluation. A PCA layer standardises it first.
InspectedMatrix inspected_matrix(const std::filesystem::path& where,
                                 const InspectedMatrixOptions& options);

}  // namespace keel::cli
