#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lab/train/options.h"

namespace keel::lab {

/// The timing of one configuration: whole steps on random images, including augmentation and optimiser.
struct StepTiming {
  std::string name;            ///< e.g. "zca d=64 exact"
  bool graph = false;          ///< replayed as a CUDA graph
  double milliseconds = 0;     ///< median of the rounds
  double least = 0, most = 0;  ///< of the rounds
  double images_per_second = 0;
  double ratio = 0;  ///< to BatchNorm's step of the same kind (graph or not)
  /// CPU: share of the step spent outside operators; empty on CUDA.
  std::optional<double> outside_operators;
  /// CUDA without a graph: memory a step takes at most, beyond what stays; otherwise 0.
  double peak_mib = 0;
};

struct BenchOptions {
  /// model and which of its norms, batch, precision, order, device; the norm is set by each case
  TrainOptions train;
  std::vector<NormOptions> norms;  ///< compared with BatchNorm, which is always measured
  std::int64_t steps = 20;         ///< in a round
  std::int64_t rounds = 5;         ///< of each case, interleaved
  /// Seconds; a round of slower steps has fewer of them.
  double longest_round = std::numeric_limits<double>::infinity();
  bool eager = true, graph = true;  ///< graph: on CUDA only
};

/// "batch", "zca d=64 exact", "pca d=64 exact 99 %", "zca d=16 exact, all norms".
std::string name_of(const ModelOptions& model);

std::vector<StepTiming> bench_train(const BenchOptions& options);

/// One part of BatchNorm's step, timed separately. On CUDA it is replayed as a graph if the options say so.
struct PartTiming {
  std::string name;
  double milliseconds = 0;  ///< median of the rounds
};

/// Times augmentation, forward, backward with the loss (both together less forward), the end of the step (the whole less
/// the rest), and the whole step.
std::vector<PartTiming> bench_parts(const BenchOptions& options);

}  // namespace keel::lab
