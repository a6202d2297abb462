#pragma once

#include <torch/types.h>

#include <vector>

#include "lab/reproduce/measure.h"

namespace keel::lab::reproduce {

/// The covariance of the first convolution's output at one step of a training run.
struct Snapshot {
  std::int64_t step = 0;
  torch::Tensor covariance;  ///< (C, C) float64, without eps
};

struct Snapshots {
  std::vector<Snapshot> snapshots;
  Data data;
  std::string device;
};

/// Loads the data, trains with the options and all channels in one group, and records the covariance after the first
/// step and after each epoch.
Snapshots training_covariances(const Measuring& what);

/// (C / d, d, d): the covariances of groups of d channels, with eps on the diagonal. Empty if d does not divide C.
std::vector<torch::Tensor> blocks(const Snapshot& snapshot, std::int64_t d, double eps);

}  // namespace keel::lab::reproduce
