#include "keel/running_average.h"

#include <algorithm>

#include "cuda/launch/launch.h"
#include "instantiate.h"
#include "mix.h"
#include "running_average_check.h"

namespace keel::cuda {
namespace {

constexpr unsigned kThreads = 1024;

template <typename T>
__device__ void move(T share, T& old, T now) {
  old = mixed(share, old, now);
}

/// Element k of the diagonals of all groups, one after another.
template <typename T>
__device__ T variance_of(const Matrices<const T>& covariance, unsigned k) {
  const unsigned d = unsigned(covariance.n), i = k % d;
  return covariance[k / d][i * (covariance.row_stride + 1)];
}

/// Entry k of the matrices, one after another and row by row. If they are dense, that is number k in
/// memory. The divisions would take longer than the loads.
template <typename T>
__device__ T& entry_of(const Matrices<T>& matrices, unsigned k) {
  const std::int64_t d = matrices.n;
  if (matrices.row_stride == d && matrices.batch_stride == d * d) return matrices.data[k];
  const unsigned row = k / unsigned(d);
  return matrices[row / unsigned(d)][row % unsigned(d) * matrices.row_stride + k % unsigned(d)];
}

/// Entries of the batch's and the running matrix that a thread loads up front, so that both
/// latencies overlap.
constexpr int kHeld = 4;
constexpr unsigned kChunk = kHeld * kThreads;  ///< entries of a block

/// Every block checks all of the batch's statistics and writes its own entries. Only with one block
/// may `average` be true: the others would read a number of batches that the first has changed.
template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    running_average_kernel(bool average, T momentum, T eps, const T* mean,
                           Matrices<const T> covariance, Matrices<const T> layer_matrix,
                           RunningStatistics<T> running) {
  const unsigned d = unsigned(covariance.n), channels = unsigned(covariance.batch) * d;
  const unsigned entries = channels * d, own = blockIdx.x * kChunk;
  const auto now_at = [&](unsigned k) -> const T& { return entry_of(layer_matrix, k); };
  const auto running_at = [&](unsigned k) -> T& { return entry_of(running.matrix, k); };
  T now[kHeld], old[kHeld];
  await_previous();
  let_next_start();
#pragma unroll
  for (unsigned h = 0; h < kHeld; ++h) {
    const unsigned k = own + threadIdx.x + h * kThreads;
    old[h] = k < entries ? running_at(k) : T(0);
    now[h] = k < entries ? now_at(k) : T(0);
  }
  const std::int64_t batches = *running.batches + 1;
  bool finite = true;
  for (unsigned k = threadIdx.x; k < channels; k += kThreads)
    finite = finite && isfinite(mean[k]) && isfinite(variance_of(covariance, k));
#pragma unroll
  for (unsigned h = 0; h < kHeld; ++h) finite &= bool(isfinite(now[h]));
#pragma unroll 2
  for (unsigned chunk = 0; chunk < entries; chunk += kChunk) {
    if (chunk == own) continue;
#pragma unroll
    for (unsigned h = 0; h < kHeld; ++h) {
      const unsigned k = chunk + threadIdx.x + h * kThreads;
      finite &= k >= entries || bool(isfinite(now_at(k)));
    }
  }
  if (!__syncthreads_and(finite)) return;  // all threads have also read the batch count by now

  const T share = average ? T(1) / T(batches) : momentum;
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) *running.batches = batches;
    for (unsigned k = threadIdx.x; k < channels; k += kThreads) {
      move(share, running.mean[k], mean[k]);
      if (running.variance) move(share, running.variance[k], variance_of(covariance, k));
    }
  }
  const auto scaled = [&](unsigned k, T x) {
    if (!running.variance) return x;
    return x * T(sqrt(variance_of(covariance, k / d / d * d + k % d) + eps));
  };
#pragma unroll
  for (unsigned h = 0; h < kHeld; ++h) {
    const unsigned k = own + threadIdx.x + h * kThreads;
    if (k >= entries) break;
    move(share, old[h], scaled(k, now[h]));
    running_at(k) = old[h];
  }
  for (unsigned chunk = own + gridDim.x * kChunk; chunk < entries; chunk += gridDim.x * kChunk)
#pragma unroll
    for (unsigned h = 0; h < kHeld; ++h) {
      const unsigned k = chunk + threadIdx.x + h * kThreads;
      if (k < entries) move(share, running_at(k), scaled(k, now_at(k)));
    }
}

}  // namespace

template <typename T>
void running_average(const std::optional<double>& momentum, double eps, const T* mean,
                     Matrices<const T> covariance, Matrices<const T> layer_matrix,
                     RunningStatistics<T> running, const Stream& stream) {
  constexpr const char* kOperation = "keel::running_average";
  check_running_average(kOperation, mean, covariance, layer_matrix, running);
  if (covariance.batch * covariance.n * covariance.n > INT32_MAX)
    throw Error(std::string(kOperation) + ": expected fewer than 2^31 numbers, got covariances " +
                shape(covariance));
  const auto entries = unsigned(covariance.batch * covariance.n * covariance.n);
  const unsigned blocks = momentum ? std::clamp((entries + kChunk - 1) / kChunk, 1u, 128u) : 1;
  launch(kOperation, running_average_kernel<T>,
         {.blocks = blocks, .threads = kThreads, .early = true}, stream, !momentum,
         T(momentum.value_or(0)), T(eps), mean, covariance, layer_matrix, running);
}

#define KEEL_STAGES(T) KEEL_STAGE(running_average, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
