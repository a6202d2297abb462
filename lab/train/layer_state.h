#pragma once

#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/models/resnet.h"

namespace keel::lab {

/// The spectrum of one layer under test at the last training step; on the CPU.
struct LayerState {
  std::string name;          ///< in the network: bn1
  std::string layer;         ///< in words
  torch::Tensor values;      ///< (G, d) float64, descending; undefined: the layer has none
  torch::Tensor covariance;  ///< (G, d, d) float64; undefined: none, or not asked for
  torch::Tensor rank;        ///< (G) int64

  /// Least difference of neighbours within a group; NaN where there is none.
  double smallest_gap() const;
  /// Least of the groups; 0 where there is none.
  std::int64_t smallest_rank() const;
};

using LayerStates = std::vector<LayerState>;

enum class Covariances { kWithout, kWith };

/// Of each layer under test, in the network's order. Waits for the device.
LayerStates layer_states(const ResNet& model, Covariances covariances = Covariances::kWith);

/// The least of all layers; NaN and 0 where none has any.
double smallest_gap(const LayerStates& states);
std::int64_t smallest_rank(const LayerStates& states);

/// The layers in words: "ZcaWhitening(...)", or that and how many more there are.
std::string description(const LayerStates& states);

/// Covariances of this many numbers in all are written; those of later layers are null. They grow with the
/// square of the group size: all layers of a large network would be hundreds of megabytes.
constexpr std::int64_t kMostCovarianceNumbers = std::int64_t{1} << 20;

/// {"name", "layer", "step", "values", "covariance", "rank", "smallest_gap"}, lists of numbers; null for what is not
/// finite or not there. Of several layers {"step", "smallest_gap", "layers"}, each as above but for the step.
nlohmann::json to_json(const LayerStates& states, std::int64_t step);

}  // namespace keel::lab
