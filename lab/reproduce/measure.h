#pragma once

// Experiments that are not tables of trainings. They are computed or measured in this process.

#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/reproduce/page.h"

namespace keel::lab::reproduce {

struct Measuring {
  const Recipe& recipe;
  TrainOptions options;  ///< the recipe's, with those of the command line
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

struct Measured {
  Json figures;  ///< an object; its lists are written one item per line
  std::optional<Data> data = std::nullopt;
  std::string device = "cpu";
};

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

/// A kind of measurement, and its part of the page.
struct Kind {
  Measured (*measure)(const Measuring& what);
  Page (*body)(const Recipe& recipe, const Results& results);
};
extern const Kind kTerms;          ///< Table 1: how many terms the series needs
extern const Kind kSurface;        ///< Figure 1: ratio^k
extern const Kind kTiming;         ///< whole training steps with each layer
extern const Kind kGradientError;  ///< gradients on a training's covariances, against the exact one
extern const Kind kBounds;         ///< the largest gradient each rule can give
extern const Kind kConditions;     ///< layers on activations that are hard in one way each

/// Throws keel::Error if the recipe's kind is unknown.
const Kind& kind_of(const Recipe& recipe);

}  // namespace keel::lab::reproduce
