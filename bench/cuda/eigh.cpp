// keel::cuda::eigh beside cuSOLVER's batched routines on the same matrices: medians and accuracy.

#include <cuda_runtime_api.h>
#include <cusolverDn.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>
#include <stdexcept>
#include <vector>

#include "keel/eigh.h"
#include "support/eigen_quality.h"

namespace {

void check(int code, const char* what) {
  if (code != 0) throw std::runtime_error(fmt::format("{}: error {}", what, code));
}
#define KEEL_CHECK(call) check(int(call), #call)

template <typename T>
struct Device {
  T* data = nullptr;
  explicit Device(std::size_t count) {
    KEEL_CHECK(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(T) * (count + 1)));
  }
  ~Device() { cudaFree(data); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  void set(const std::vector<T>& from) {
    KEEL_CHECK(cudaMemcpy(data, from.data(), sizeof(T) * from.size(), cudaMemcpyHostToDevice));
  }
  std::vector<T> get(std::size_t count) const {
    std::vector<T> to(count);
    KEEL_CHECK(cudaMemcpy(to.data(), data, sizeof(T) * count, cudaMemcpyDeviceToHost));
    return to;
  }
};

/// Median milliseconds of `call` on the default stream, after three calls to warm up.
double median(const std::function<void()>& call) {
  cudaEvent_t begin, end;
  KEEL_CHECK(cudaEventCreate(&begin));
  KEEL_CHECK(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) call();
  std::vector<float> times(20);
  for (float& time : times) {
    KEEL_CHECK(cudaEventRecord(begin));
    call();
    KEEL_CHECK(cudaEventRecord(end));
    KEEL_CHECK(cudaEventSynchronize(end));
    KEEL_CHECK(cudaEventElapsedTime(&time, begin, end));
  }
  KEEL_CHECK(cudaEventDestroy(begin));
  KEEL_CHECK(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  return times[10];
}

/// Covariances of 2n samples; 64 different ones, repeated.
std::vector<float> covariances(std::size_t batch, std::size_t n) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> m(batch * n * n), x(2 * n * n);
  for (std::size_t b = 0; b < std::min<std::size_t>(batch, 64); ++b) {
    for (float& sample : x) sample = normal(generator);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        float sum = 0;
        for (std::size_t k = 0; k < 2 * n; ++k) sum += x[i * 2 * n + k] * x[j * 2 * n + k];
        m[(b * n + i) * n + j] = sum / float(2 * n);
      }
  }
  for (std::size_t k = 64 * n * n; k < m.size(); ++k) m[k] = m[k - 64 * n * n];
  return m;
}

/// The worst of the first matrices.
keel::testing::EigenQuality worst(std::int64_t n, const std::vector<float>& m,
                                  const std::vector<float>& values,
                                  const std::vector<float>& vectors) {
  keel::testing::EigenQuality all;
  for (std::int64_t b = 0; b < std::min<std::int64_t>(64, std::int64_t(m.size()) / (n * n)); ++b) {
    const auto q = keel::testing::eigen_quality(n, m.data() + b * n * n, values.data() + b * n,
                                                vectors.data() + b * n * n);
    all.residual = std::max(all.residual, q.residual);
    all.orthogonality = std::max(all.orthogonality, q.orthogonality);
  }
  return all;
}

void compare(cusolverDnHandle_t handle, std::int64_t n, std::int64_t batch) {
  const auto entries = std::size_t(batch * n * n), numbers = std::size_t(batch * n);
  const std::vector<float> m = covariances(std::size_t(batch), std::size_t(n));
  Device<float> matrices(entries), values(numbers), vectors(entries), work(entries);
  Device<int> info{std::size_t(batch)};
  matrices.set(m);
  const double own = median([&] {
    keel::cuda::eigh<float>(keel::contiguous<const float>(matrices.data, batch, n), values.data,
                            keel::contiguous(vectors.data, batch, n));
  });
  const auto quality = worst(n, m, values.get(numbers), vectors.get(entries));

  const int size = int(n), count = int(batch);
  const auto restore = [&] {
    KEEL_CHECK(cudaMemcpyAsync(work.data, matrices.data, sizeof(float) * entries,
                               cudaMemcpyDeviceToDevice));
  };
  const double copying = median(restore);
  cusolverDnParams_t params;
  KEEL_CHECK(cusolverDnCreateParams(&params));
  std::size_t on_device = 0, on_host = 0;
  KEEL_CHECK(cusolverDnXsyevBatched_bufferSize(
      handle, params, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, size, CUDA_R_32F, work.data,
      size, CUDA_R_32F, values.data, CUDA_R_32F, &on_device, &on_host, count));
  Device<char> device_buffer(on_device);
  std::vector<char> host_buffer(on_host + 1);
  const double batched = median([&] {
    restore();
    KEEL_CHECK(cusolverDnXsyevBatched(handle, params, CUSOLVER_EIG_MODE_VECTOR,
                                      CUBLAS_FILL_MODE_LOWER, size, CUDA_R_32F, work.data, size,
                                      CUDA_R_32F, values.data, CUDA_R_32F, device_buffer.data,
                                      on_device, host_buffer.data(), on_host, info.data, count));
  });
  // Its vectors are columns of a column-major matrix: the rows of ours.
  std::vector<float> theirs = work.get(entries);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < i; ++j)
        std::swap(theirs[std::size_t((b * n + i) * n + j)],
                  theirs[std::size_t((b * n + j) * n + i)]);
  const auto peer = worst(n, m, values.get(numbers), theirs);
  KEEL_CHECK(cusolverDnDestroyParams(params));

  syevjInfo_t jacobi;
  int length = 0;
  KEEL_CHECK(cusolverDnCreateSyevjInfo(&jacobi));
  KEEL_CHECK(cusolverDnSsyevjBatched_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR,
                                                CUBLAS_FILL_MODE_LOWER, size, work.data, size,
                                                values.data, &length, jacobi, count));
  Device<float> jacobi_buffer{std::size_t(length)};
  const double by_jacobi = median([&] {
    restore();
    KEEL_CHECK(cusolverDnSsyevjBatched(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER,
                                       size, work.data, size, values.data, jacobi_buffer.data,
                                       length, info.data, jacobi, count));
  });
  KEEL_CHECK(cusolverDnDestroySyevjInfo(jacobi));

  fmt::print(
      "n={:<3} batch={:<5} keel {:.4f} ms   XsyevBatched {:.4f} ({:.1f}x)   syevjBatched {:.4f} "
      "({:.1f}x)   residual {:.1e} ({:.1f}x)   orthogonality {:.1e} ({:.1f}x)\n",
      n, batch, own, batched - copying, (batched - copying) / own, by_jacobi - copying,
      (by_jacobi - copying) / own, quality.residual, quality.residual / peer.residual,
      quality.orthogonality, quality.orthogonality / peer.orthogonality);
}

}  // namespace

int main() {
  try {
    cusolverDnHandle_t handle;
    KEEL_CHECK(cusolverDnCreate(&handle));
    fmt::print(
        "float32; times of cuSOLVER and their ratios to keel's, accuracy against XsyevBatched's\n");
    for (const std::int64_t n : {4, 8, 16, 32, 64})
      for (const std::int64_t batch : {1, 16, 256, 4096}) compare(handle, n, batch);
    KEEL_CHECK(cusolverDnDestroy(handle));
  } catch (const std::exception& error) {
    fmt::print(stderr, "keel_bench_cuda: {}\n", error.what());
    return 1;
  }
}
