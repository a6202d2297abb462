#pragma once

#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/models/resnet.h"

namespace keel::lab {

/// The spectrum of one layer under test at the last training step, on the CPU.
struct LayerState {
  std::string name;  ///< in the network, e.g. bn1
  /// (G, d) float64, descending, as the solver found them: some may be below eps. Undefined if the layer has none.
  torch::Tensor values;
  torch::Tensor covariance;  ///< (G, d, d) float64; undefined: none, or not requested
  torch::Tensor rank;        ///< (G) int64

  /// The smallest difference of neighbouring eigenvalues within a group, one of them kept: two that are dropped do not
  /// matter. NaN if there are none.
  double smallest_gap() const;
  /// The smallest rank of all groups; 0 if there is none.
  std::int64_t smallest_rank() const;
};

using LayerStates = std::vector<LayerState>;

enum class Covariances { kWithout, kWith };

/// The states of all layers under test, in network order. Waits for the device.
LayerStates layer_states(const ResNet& model, Covariances covariances = Covariances::kWith);

/// The smallest over all layers. NaN (gap) or 0 (rank) if no layer has any.
double smallest_gap(const LayerStates& states);
std::int64_t smallest_rank(const LayerStates& states);

/// Limit on the covariance numbers written in total; later layers get null. Covariances grow with the square of the
/// group size, so all layers of a large network would take hundreds of megabytes.
constexpr std::int64_t kMostCovarianceNumbers = std::int64_t{1} << 20;

/// {"step", "smallest_gap", "layers"}, each layer {"name", "values", "covariance", "rank", "smallest_gap"}, with lists of
/// numbers. Missing and non-finite values are null.
nlohmann::json to_json(const LayerStates& states, std::int64_t step);

}  // namespace keel::lab
