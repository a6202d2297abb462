#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lab/train/options.h"

namespace keel::lab {

/// The timing of one configuration: whole steps on random images, including augmentation and optimiser.
struct StepTiming {
  TrainOptions options;        ///< of the steps
  bool graph = false;          ///< replayed as a CUDA graph
  double milliseconds = 0;     ///< median of the rounds
  double least = 0, most = 0;  ///< fastest and slowest round
  double images_per_second = 0;
  double ratio = 0;  ///< to the BatchNorm step of the same kind (graph or eager)
  /// CUDA without a graph: peak memory of a step, beyond what was allocated before it; otherwise 0.
  double peak_mib = 0;
};

struct BenchOptions {
  /// Model, which norms to replace, batch, precision, memory order, device. Each case sets the norm.
  TrainOptions train;
  std::vector<NormOptions> norms;  ///< compared with BatchNorm, which is always measured
  std::int64_t steps = 20;         ///< per round
  std::int64_t rounds = 5;         ///< per case, interleaved
  /// Seconds. Rounds of slow steps run fewer of them.
  double longest_round = std::numeric_limits<double>::infinity();
  bool eager = true, graph = true;  ///< graph is for CUDA only
};

std::vector<StepTiming> bench_train(const BenchOptions& options);

}  // namespace keel::lab
