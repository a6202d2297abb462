#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace keel::cli {

struct InspectedMatrixOptions {
  std::string layer;  ///< its name in the network; empty means the first one under test
  std::int64_t group = 0;
  std::optional<double> eps;   ///< empty means the layer's own, or 0 for .npy files
  std::int64_t images = 1024;  ///< images for a checkpoint's network
};

struct InspectedMatrix {
  torch::Tensor matrix;  ///< (n, n) float64: the matrix that the layer decomposes
  std::string description;
};

/// Reads a .npy file, the spectrum.json of a run folder, or a checkpoint. For a checkpoint, computes the covariance
/// from the checkpoint's own data set, with the network in evaluation mode. A PCA layer standardises it first.
InspectedMatrix inspected_matrix(const std::filesystem::path& where,
                                 const InspectedMatrixOptions& options);

}  // namespace keel::cli
