#pragma once

// Stage: a batch's statistics -> running statistics. It has no gradient: running statistics are not
// part of the autograd graph.

#include <cstdint>
#include <optional>

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// What a layer uses in evaluation mode. This is a view: it owns nothing.
template <typename T>
struct RunningStatistics {
  T* mean = nullptr;                ///< channels
  Matrices<T> matrix;               ///< groups of d x d
  T* variance = nullptr;            ///< channels, of layers that standardise; null otherwise
  std::int64_t* batches = nullptr;  ///< one number: the batches tracked so far
};

/// Mixes the batch's statistics into the running ones:
///     running = (1 - share) * running + share * batch
///
/// - A share of 1 gives exactly the batch's statistics, and a share of 0 exactly the running ones.
/// - The share is `momentum`. If that is empty, it is 1 / batches, counting this batch: the plain
///   average.
/// - The batch's variance is the diagonal of `covariance`. If running.variance is not null, column
///   j of `layer_matrix` is first multiplied by sqrt(variance_j + eps). This removes the
///   standardising factor and leaves the projector, or 0 where variance_j + eps is 0.
/// - If any of mean, variance and matrix is not finite, nothing changes, not even `batches`.
/// - The batch's and the running statistics must not overlap.
namespace cpu {
template <typename T>
void running_average(const std::optional<double>& momentum, double eps, const T* mean,
                     Matrices<const T> covariance, Matrices<const T> layer_matrix,
                     RunningStatistics<T> running, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// One launch. Every block looks at all of the batch's statistics, because nothing may be written
/// before everything is known to be finite.
template <typename T>
void running_average(const std::optional<double>& momentum, double eps, const T* mean,
                     Matrices<const T> covariance, Matrices<const T> layer_matrix,
                     RunningStatistics<T> running, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
