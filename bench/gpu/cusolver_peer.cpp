#include "cusolver_peer.h"

#include <c10/cuda/CUDAStream.h>
#include <cusolverDn.h>
#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <type_traits>

namespace keel::bench {
namespace {

void check(cusolverStatus_t status, const char* what) {
  if (status != CUSOLVER_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("{}: cuSOLVER status {}", what, int(status)));
}
#define KEEL_CHECK(call) check(call, #call)

constexpr auto kVectors = CUSOLVER_EIG_MODE_VECTOR;

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

/// A row-major lower triangle is a column-major upper one; symmetric matrices are both.
constexpr auto kLower = CUBLAS_FILL_MODE_LOWER;

cusolverDnParams_t parameters() {
  static cusolverDnParams_t shared = [] {
    cusolverDnParams_t made = nullptr;
    KEEL_CHECK(cusolverDnCreateParams(&made));
    return made;
  }();
  return shared;
}

using Jacobi = std::shared_ptr<syevjInfo>;
Jacobi jacobi() {
  syevjInfo_t made = nullptr;
  KEEL_CHECK(cusolverDnCreateSyevjInfo(&made));
  return {made, [](syevjInfo_t p) { cusolverDnDestroySyevjInfo(p); }};
}

/// The memory a routine works in: it overwrites its input.
template <typename T>
struct Work {
  static constexpr cudaDataType kType = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_64F;
  torch::Tensor input, matrices, values, info, buffer;
  std::vector<char> host_buffer;
  Jacobi info_of_jacobi;
  int n, batch, length = 0;

  explicit Work(const torch::Tensor& given)
      : input(given),
        matrices(torch::empty_like(given)),
        values(torch::empty({given.size(0), given.size(1)}, given.options())),
        info(torch::empty({given.size(0)}, given.options().dtype(torch::kInt))),
        n(int(given.size(1))),
        batch(int(given.size(0))) {}
  void reserve(std::size_t bytes, std::size_t on_host = 0) {
    buffer = torch::empty({std::int64_t(bytes) + 16}, input.options().dtype(torch::kByte));
    host_buffer.resize(on_host + 1);
  }
  void restore() { matrices.copy_(input); }
  T* m(std::int64_t b = 0) { return matrices.data_ptr<T>() + b * n * n; }
  T* l(std::int64_t b = 0) { return values.data_ptr<T>() + b * n; }
  int* status() { return info.data_ptr<int>(); }
  T* scratch() { return reinterpret_cast<T*>(buffer.data_ptr<std::uint8_t>()); }
};

template <typename T>
std::function<void()> xsyev_batched(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work<T>>(matrices);
  constexpr auto kType = Work<T>::kType;
  std::size_t on_device = 0, on_host = 0;
  KEEL_CHECK(cusolverDnXsyevBatched_bufferSize(handle(), parameters(), kVectors, kLower, work->n,
                                               kType, work->m(), work->n, kType, work->l(), kType,
                                               &on_device, &on_host, work->batch));
  work->reserve(on_device, on_host);
  return [=] {
    work->restore();
    KEEL_CHECK(cusolverDnXsyevBatched(handle(), parameters(), kVectors, kLower, work->n, kType,
                                      work->m(), work->n, kType, work->l(), kType, work->scratch(),
                                      on_device, work->host_buffer.data(), on_host, work->status(),
                                      work->batch));
  };
}

/// One matrix after another.
template <typename T>
std::function<void()> xsyevd(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work<T>>(matrices);
  constexpr auto kType = Work<T>::kType;
  std::size_t on_device = 0, on_host = 0;
  KEEL_CHECK(cusolverDnXsyevd_bufferSize(handle(), parameters(), kVectors, kLower, work->n, kType,
                                         work->m(), work->n, kType, work->l(), kType, &on_device,
                                         &on_host));
  work->reserve(on_device, on_host);
  return [=] {
    work->restore();
    for (int b = 0; b < work->batch; ++b)
      KEEL_CHECK(cusolverDnXsyevd(handle(), parameters(), kVectors, kLower, work->n, kType,
                                  work->m(b), work->n, kType, work->l(b), kType, work->scratch(),
                                  on_device, work->host_buffer.data(), on_host, work->status()));
  };
}

/// The routine of T's name: S for float, D for double.
template <typename T, typename S, typename D>
auto of_type(S single, D twice) {
  if constexpr (std::is_same_v<T, float>)
    return single;
  else
    return twice;
}

/// A routine that asks with `size` how many numbers it works in, and takes `more` behind the usual arguments. It is called
/// `calls` times: once for the batch, or once for each matrix.
template <typename T, typename Size, typename Solve, typename... More>
std::function<void()> usual(const std::shared_ptr<Work<T>>& work, int calls, Size size, Solve solve,
                            More... more) {
  KEEL_CHECK(size(handle(), kVectors, kLower, work->n, work->m(), work->n, work->l(), &work->length,
                  more...));
  work->reserve(sizeof(T) * std::size_t(work->length));
  return [=] {
    work->restore();
    for (int b = 0; b < calls; ++b)
      KEEL_CHECK(solve(handle(), kVectors, kLower, work->n, work->m(b), work->n, work->l(b),
                       work->scratch(), work->length, work->status(), more...));
  };
}

template <typename T>
std::function<void()> syevj_batched(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work<T>>(matrices);
  work->info_of_jacobi = jacobi();
  return usual(work, 1,
               of_type<T>(cusolverDnSsyevjBatched_bufferSize, cusolverDnDsyevjBatched_bufferSize),
               of_type<T>(cusolverDnSsyevjBatched, cusolverDnDsyevjBatched),
               work->info_of_jacobi.get(), work->batch);
}

template <typename T>
std::function<void()> syevj(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work<T>>(matrices);
  work->info_of_jacobi = jacobi();
  return usual(work, work->batch,
               of_type<T>(cusolverDnSsyevj_bufferSize, cusolverDnDsyevj_bufferSize),
               of_type<T>(cusolverDnSsyevj, cusolverDnDsyevj), work->info_of_jacobi.get());
}

template <typename T>
std::function<void()> syevd(const std::shared_ptr<Work<T>>& work) {
  return usual(work, work->batch,
               of_type<T>(cusolverDnSsyevd_bufferSize, cusolverDnDsyevd_bufferSize),
               of_type<T>(cusolverDnSsyevd, cusolverDnDsyevd));
}

template <typename T>
std::function<void()> syevdx(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work<T>>(matrices);
  constexpr auto kAll = CUSOLVER_EIG_RANGE_ALL;
  int found = 0;
  const auto size = of_type<T>(cusolverDnSsyevdx_bufferSize, cusolverDnDsyevdx_bufferSize);
  KEEL_CHECK(size(handle(), kVectors, kAll, kLower, work->n, work->m(), work->n, 0, 0, 1, work->n,
                  &found, work->l(), &work->length));
  work->reserve(sizeof(T) * std::size_t(work->length));
  return [=] {
    work->restore();
    const auto solve = of_type<T>(cusolverDnSsyevdx, cusolverDnDsyevdx);
    int count = 0;
    for (int b = 0; b < work->batch; ++b)
      KEEL_CHECK(solve(handle(), kVectors, kAll, kLower, work->n, work->m(b), work->n, 0, 0, 1,
                       work->n, &count, work->l(b), work->scratch(), work->length, work->status()));
  };
}

template <typename T>
std::vector<Peer> peers_of(const torch::Tensor& matrices) {
  const std::int64_t batch = matrices.size(0), n = matrices.size(1);
  const auto copy = std::make_shared<Work<T>>(matrices);
  std::vector<Peer> peers{{"copy", [=] { copy->restore(); }},
                          {"XsyevBatched", xsyev_batched<T>(matrices)}};
  // Alone a matrix takes another path of the batched routine; with a companion it does not.
  if (batch == 1)
    peers.push_back({"XsyevBatched of 2", xsyev_batched<T>(torch::cat({matrices, matrices}))});
  // One matrix at a time, these are left behind where there are many: and Jacobi's routines where n is large.
  if (batch <= 16) {
    peers.push_back({"Xsyevd", xsyevd<T>(matrices)});
    peers.push_back({"syevd", syevd<T>(std::make_shared<Work<T>>(matrices))});
    peers.push_back({"syevdx", syevdx<T>(matrices)});
    if (n <= 512) peers.push_back({"syevj", syevj<T>(matrices)});
  }
  if (n <= 512) peers.push_back({"syevjBatched", syevj_batched<T>(matrices)});
  return peers;
}

/// The memory a routine works on m x n matrices in, with both sides' vectors.
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
  return matrices.scalar_type() == at::kDouble ? peers_of<double>(matrices)
                                               : peers_of<float>(matrices);
}

std::pair<torch::Tensor, torch::Tensor> by_syevd(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work<float>>(matrices);
  syevd<float>(work)();
  // Ascending, and its columns are the rows of a row-major matrix.
  return {work->values.flip(1), work->matrices.mT().flip(2)};
}

std::vector<Peer> cusolver_svd_peers(const torch::Tensor& matrices) {
  const auto copy = std::make_shared<SvdWork>(matrices);
  std::vector<Peer> peers{{"copy", [=] { copy->restore(); }},
                          {"gesvdaStridedBatched", gesvda_batched(matrices)}};
  if (matrices.size(1) <= 32) peers.push_back({"gesvdjBatched", gesvdj_batched(matrices)});
  return peers;
}

}  // namespace keel::bench
