#pragma once

// Stage: a batch's statistics -> running statistics. It has no gradient: running statistics are not part
// of the graph.

#include <cstdint>
#include <optional>

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// What a layer in evaluation works with. A view: it owns nothing.
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
/// - A share of 1 leaves the batch's statistics, and a share of 0 the running ones, exactly.
/// - The share is `momentum`, or 1 / batches (this one counted) where that is empty: the plain average.
/// - The batch's variance is the diagonal of `covariance`. With running.variance, column j of
///   `layer_matrix` is taken times sqrt(variance_j + eps) first: without the standardising factor the
///   projector remains.
/// - Unless mean, variance and matrix are finite throughout, nothing changes, `batches` included.
/// - Batch and running statistics must not overlap.
namespace cpu {
template <typename T>
void running_average(const std::optional<double>& momentum, double eps, const T* mean,
                     Matrices<const T> covariance, Matrices<const T> layer_matrix,
                     RunningStatistics<T> running, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// One launch, of one block: whether all is finite must be known before anything is written.
template <typename T>
void running_average(const std::optional<double>& momentum, double eps, const T* mean,
                     Matrices<const T> covariance, Matrices<const T> layer_matrix,
                     RunningStatistics<T> running, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
