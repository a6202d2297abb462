#include "keel/running_average.h"

#include <cmath>

#include "instantiate.h"
#include "mix.h"
#include "running_average_check.h"

namespace keel::cpu {

template <typename T>
void running_average(const std::optional<double>& momentum, double eps, const T* mean,
                     Matrices<const T> covariance, Matrices<const T> layer_matrix,
                     RunningStatistics<T> running, const Executor& executor) {
  check_running_average("keel::running_average", mean, covariance, layer_matrix, running);
  const std::int64_t d = covariance.n, groups = covariance.batch;
  const auto variance = [&](std::int64_t g, std::int64_t i) {
    return covariance[g][i * covariance.row_stride + i];
  };
  // 0 * x is 0 for finite x and NaN otherwise, so the sum is 0 only if everything is finite.
  T not_finite = 0;
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t i = 0; i < d; ++i) {
      not_finite += T(0) * mean[g * d + i] + T(0) * variance(g, i);
      const T* const row = layer_matrix[g] + i * layer_matrix.row_stride;
      for (std::int64_t j = 0; j < d; ++j) not_finite += T(0) * row[j];
    }
  if (!(not_finite == 0)) return;

  const std::int64_t batches = ++*running.batches;
  const T share = momentum ? T(*momentum) : T(1) / T(batches);
  const auto move = [share](T& old, T now) { old = mixed(share, old, now); };
  executor(groups, [&](std::int64_t g) {
    for (std::int64_t i = 0; i < d; ++i) {
      move(running.mean[g * d + i], mean[g * d + i]);
      if (running.variance) move(running.variance[g * d + i], variance(g, i));
      const T* const row = layer_matrix[g] + i * layer_matrix.row_stride;
      T* const old = running.matrix[g] + i * running.matrix.row_stride;
      for (std::int64_t j = 0; j < d; ++j)
        move(old[j], running.variance ? row[j] * std::sqrt(variance(g, j) + T(eps)) : row[j]);
    }
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(running_average, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
