#include "keel/track.h"

#include "scratch.h"
#include "track_check.h"

namespace keel::cuda {
namespace {

constexpr unsigned kThreads = 1024;

template <typename T>
__device__ void move(T share, T& old, T now) {
  old += share * (now - old);
}

/// Number k of the covariance's diagonal, all groups' in a row.
template <typename T>
__device__ T variance_of(const Matrices<const T>& covariance, unsigned k) {
  const unsigned d = unsigned(covariance.n), i = k % d;
  return covariance[k / d][i * (covariance.row_stride + 1)];
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    track_kernel(bool average, T momentum, T eps, const T* mean, Matrices<const T> covariance,
                 Matrices<const T> subspace, RunningStatistics<T> running) {
  const unsigned d = unsigned(covariance.n), channels = unsigned(covariance.batch) * d;
  bool finite = true;
  for (unsigned k = threadIdx.x; k < channels; k += kThreads)
    finite = finite && isfinite(mean[k]) && isfinite(variance_of(covariance, k));
#pragma unroll 4
  for (unsigned k = threadIdx.x; k < channels * d; k += kThreads) {
    const unsigned row = k / d;
    finite &= bool(isfinite(subspace[row / d][row % d * subspace.row_stride + k % d]));
  }
  if (!__syncthreads_and(finite)) return;

  const std::int64_t batches = *running.batches + 1;
  __syncthreads();  // all have read it
  if (threadIdx.x == 0) *running.batches = batches;
  const T share = average ? T(1) / T(batches) : momentum;
  for (unsigned k = threadIdx.x; k < channels; k += kThreads) {
    move(share, running.mean[k], mean[k]);
    if (running.variance) move(share, running.variance[k], variance_of(covariance, k));
  }
#pragma unroll 4
  for (unsigned k = threadIdx.x; k < channels * d; k += kThreads) {
    const unsigned row = k / d, g = row / d, i = row % d, j = k % d;
    T now = subspace[g][i * subspace.row_stride + j];
    if (running.variance) now *= sqrt(variance_of(covariance, g * d + j) + eps);
    move(share, running.subspace[g][i * running.subspace.row_stride + j], now);
  }
}

}  // namespace

template <typename T>
void track(const std::optional<double>& momentum, double eps, const T* mean,
           Matrices<const T> covariance, Matrices<const T> subspace, RunningStatistics<T> running,
           const Stream& stream) {
  constexpr const char* kOperation = "keel::cuda::track";
  check_track(kOperation, covariance, subspace, running);
  if (covariance.batch * covariance.n * covariance.n > INT32_MAX)
    throw Error(std::string(kOperation) + ": expected fewer than 2^31 numbers, got covariances " +
                shape(covariance));
  track_kernel<T><<<1, kThreads, 0, native(stream)>>>(!momentum, T(momentum.value_or(0)), T(eps),
                                                      mean, covariance, subspace, running);
  check_launch(kOperation);
}

#define KEEL_INSTANTIATE(T)                                                                 \
  template void track<T>(const std::optional<double>&, double, const T*, Matrices<const T>, \
                         Matrices<const T>, RunningStatistics<T>, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
