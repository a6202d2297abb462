#include "cusolver_peer.h"

#include <c10/cuda/CUDAStream.h>
#include <cusolverDn.h>
#include <fmt/format.h>

#include <memory>
#include <stdexcept>

namespace keel::bench {
namespace {

void check(cusolverStatus_t status, const char* what) {
  if (status != CUSOLVER_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("{}: cuSOLVER status {}", what, int(status)));
}
#define KEEL_CHECK(call) check(call, #call)

constexpr auto kVectors = CUSOLVER_EIG_MODE_VECTOR;
/// A row-major lower triangle is a column-major upper one; symmetric matrices are both.
constexpr auto kLower = CUBLAS_FILL_MODE_LOWER;

/// One handle for the program, on LibTorch's current stream.
cusolverDnHandle_t handle() {
  static cusolverDnHandle_t shared = [] {
    cusolverDnHandle_t made = nullptr;
    KEEL_CHECK(cusolverDnCreate(&made));
    return made;
  }();
  KEEL_CHECK(cusolverDnSetStream(shared, c10::cuda::getCurrentCUDAStream().stream()));
  return shared;
}

cusolverDnParams_t parameters() {
  static cusolverDnParams_t shared = [] {
    cusolverDnParams_t made = nullptr;
    KEEL_CHECK(cusolverDnCreateParams(&made));
    return made;
  }();
  return shared;
}

/// The memory a routine works in: it overwrites its input.
struct Work {
  torch::Tensor input, matrices, values, info, buffer;
  std::vector<char> host_buffer;
  int n, batch;

  explicit Work(const torch::Tensor& given)
      : input(given),
        matrices(torch::empty_like(given)),
        values(torch::empty({given.size(0), given.size(1)}, given.options())),
        info(torch::empty({given.size(0)}, given.options().dtype(torch::kInt))),
        n(int(given.size(1))),
        batch(int(given.size(0))) {}
  void reserve(std::size_t bytes) {
    buffer = torch::empty({std::int64_t(bytes) + 1}, input.options().dtype(torch::kByte));
  }
  void restore() { matrices.copy_(input); }
  float* m(std::int64_t b = 0) { return matrices.data_ptr<float>() + b * n * n; }
  float* l(std::int64_t b = 0) { return values.data_ptr<float>() + b * n; }
  float* scratch() { return reinterpret_cast<float*>(buffer.data_ptr<std::uint8_t>()); }
};

std::function<void()> xsyev_batched(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work>(matrices);
  std::size_t on_device = 0, on_host = 0;
  KEEL_CHECK(cusolverDnXsyevBatched_bufferSize(
      handle(), parameters(), kVectors, kLower, work->n, CUDA_R_32F, work->m(), work->n, CUDA_R_32F,
      work->l(), CUDA_R_32F, &on_device, &on_host, work->batch));
  work->reserve(on_device);
  work->host_buffer.resize(on_host + 1);
  return [=] {
    work->restore();
    KEEL_CHECK(cusolverDnXsyevBatched(handle(), parameters(), kVectors, kLower, work->n, CUDA_R_32F,
                                      work->m(), work->n, CUDA_R_32F, work->l(), CUDA_R_32F,
                                      work->scratch(), on_device, work->host_buffer.data(), on_host,
                                      work->info.data_ptr<int>(), work->batch));
  };
}

std::function<void()> syevj_batched(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work>(matrices);
  syevjInfo_t made = nullptr;
  KEEL_CHECK(cusolverDnCreateSyevjInfo(&made));
  const std::shared_ptr<syevjInfo> info(made, [](syevjInfo_t p) { cusolverDnDestroySyevjInfo(p); });
  int length = 0;
  KEEL_CHECK(cusolverDnSsyevjBatched_bufferSize(handle(), kVectors, kLower, work->n, work->m(),
                                                work->n, work->l(), &length, info.get(),
                                                work->batch));
  work->reserve(sizeof(float) * std::size_t(length));
  return [=] {
    work->restore();
    KEEL_CHECK(cusolverDnSsyevjBatched(handle(), kVectors, kLower, work->n, work->m(), work->n,
                                       work->l(), work->scratch(), length,
                                       work->info.data_ptr<int>(), info.get(), work->batch));
  };
}

std::function<void()> syevd(const std::shared_ptr<Work>& work) {
  int length = 0;
  KEEL_CHECK(cusolverDnSsyevd_bufferSize(handle(), kVectors, kLower, work->n, work->m(), work->n,
                                         work->l(), &length));
  work->reserve(sizeof(float) * std::size_t(length));
  return [=] {
    work->restore();
    for (int b = 0; b < work->batch; ++b)
      KEEL_CHECK(cusolverDnSsyevd(handle(), kVectors, kLower, work->n, work->m(b), work->n,
                                  work->l(b), work->scratch(), length, work->info.data_ptr<int>()));
  };
}

/// The same for m x n matrices, with both sides' vectors.
struct SvdWork {
  torch::Tensor input, matrices, values, left, right, info, buffer;
  std::vector<double> residuals;
  int m, n, batch;

  explicit SvdWork(const torch::Tensor& given)
      : input(given),
        matrices(torch::empty_like(given)),
        values(torch::empty({given.size(0), given.size(2)}, given.options())),
        left(torch::empty_like(given)),
        right(torch::empty({given.size(0), given.size(2), given.size(2)}, given.options())),
        info(torch::empty({given.size(0)}, given.options().dtype(torch::kInt))),
        residuals(std::size_t(given.size(0))),
        m(int(given.size(1))),
        n(int(given.size(2))),
        batch(int(given.size(0))) {}
  void reserve(int length) { buffer = torch::empty({length + 1}, input.options()); }
  void restore() { matrices.copy_(input); }
  static float* of(const torch::Tensor& t) { return t.data_ptr<float>(); }
};

std::function<void()> gesvdj_batched(const torch::Tensor& matrices) {
  const auto work = std::make_shared<SvdWork>(matrices);
  // It wants room for all of U.
  work->left =
      torch::empty({matrices.size(0), matrices.size(1), matrices.size(1)}, matrices.options());
  gesvdjInfo_t made = nullptr;
  KEEL_CHECK(cusolverDnCreateGesvdjInfo(&made));
  const std::shared_ptr<gesvdjInfo> info(made,
                                         [](gesvdjInfo_t p) { cusolverDnDestroyGesvdjInfo(p); });
  int length = 0;
  const auto of = SvdWork::of;
  KEEL_CHECK(cusolverDnSgesvdjBatched_bufferSize(
      handle(), kVectors, work->m, work->n, of(work->matrices), work->m, of(work->values),
      of(work->left), work->m, of(work->right), work->n, &length, info.get(), work->batch));
  work->reserve(length);
  return [=] {
    work->restore();
    KEEL_CHECK(cusolverDnSgesvdjBatched(handle(), kVectors, work->m, work->n, of(work->matrices),
                                        work->m, of(work->values), of(work->left), work->m,
                                        of(work->right), work->n, of(work->buffer), length,
                                        work->info.data_ptr<int>(), info.get(), work->batch));
  };
}

std::function<void()> gesvda_batched(const torch::Tensor& matrices) {
  const auto work = std::make_shared<SvdWork>(matrices);
  int length = 0;
  const auto of = SvdWork::of;
  const long long whole = (long long)(work->m) * work->n, square = (long long)(work->n) * work->n;
  KEEL_CHECK(cusolverDnSgesvdaStridedBatched_bufferSize(
      handle(), kVectors, work->n, work->m, work->n, of(work->input), work->m, whole,
      of(work->values), work->n, of(work->left), work->m, whole, of(work->right), work->n, square,
      &length, work->batch));
  work->reserve(length);
  return [=] {
    KEEL_CHECK(cusolverDnSgesvdaStridedBatched(
        handle(), kVectors, work->n, work->m, work->n, of(work->input), work->m, whole,
        of(work->values), work->n, of(work->left), work->m, whole, of(work->right), work->n, square,
        of(work->buffer), length, work->info.data_ptr<int>(), work->residuals.data(), work->batch));
  };
}

}  // namespace

std::vector<Peer> cusolver_peers(const torch::Tensor& matrices) {
  const auto copy = std::make_shared<Work>(matrices);
  std::vector<Peer> peers{{"copy", [=] { copy->restore(); }},
                          {"XsyevBatched", xsyev_batched(matrices)},
                          {"syevjBatched", syevj_batched(matrices)}};
  if (matrices.size(0) == 1) {
    // Alone a matrix takes the slow path of the batched routine; with a companion it does not.
    peers.push_back({"XsyevBatched of 2", xsyev_batched(torch::cat({matrices, matrices}))});
    peers.push_back({"syevd", syevd(std::make_shared<Work>(matrices))});
  }
  return peers;
}

std::vector<Peer> cusolver_svd_peers(const torch::Tensor& matrices) {
  const auto copy = std::make_shared<SvdWork>(matrices);
  std::vector<Peer> peers{{"copy", [=] { copy->restore(); }},
                          {"gesvdaStridedBatched", gesvda_batched(matrices)}};
  if (matrices.size(1) <= 32) peers.push_back({"gesvdjBatched", gesvdj_batched(matrices)});
  return peers;
}

std::pair<torch::Tensor, torch::Tensor> by_syevd(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work>(matrices);
  syevd(work)();
  // Ascending, and its columns are the rows of a row-major matrix.
  return {work->values.flip(1), work->matrices.mT().flip(2)};
}

}  // namespace keel::bench
