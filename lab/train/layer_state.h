#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/models/resnet.h"

namespace keel::lab {

/// The spectrum of the layer in place of the first norm at the last training step; on the CPU.
struct LayerState {
  std::string layer;         ///< in words
  torch::Tensor values;      ///< (G, d) float64, descending; undefined: the layer has none
  torch::Tensor covariance;  ///< (G, d, d) float64
  torch::Tensor rank;        ///< (G) int64

  /// Least difference of neighbours within a group; NaN where there is none.
  double smallest_gap() const;
  /// Least of the groups; 0 where there is none.
  std::int64_t smallest_rank() const;
};

/// Waits for the device.
LayerState layer_state(ResNet& model);

/// {"layer", "step", "values", "covariance", "rank", "smallest_gap"}, lists of numbers; null for
/// what is not finite or not there.
nlohmann::json to_json(const LayerState& state, std::int64_t step);

}  // namespace keel::lab
