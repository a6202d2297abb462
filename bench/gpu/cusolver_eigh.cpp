#include <memory>
#include <type_traits>

#include "cusolver.h"
#include "cusolver_peer.h"

namespace keel::bench {
namespace {

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
  void reserve_numbers() { reserve(sizeof(T) * std::size_t(length)); }
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

template <typename T>
std::function<void()> syevj_batched(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work<T>>(matrices);
  const Jacobi info = jacobi();
  const auto size =
      of_type<T>(cusolverDnSsyevjBatched_bufferSize, cusolverDnDsyevjBatched_bufferSize);
  KEEL_CHECK(size(handle(), kVectors, kLower, work->n, work->m(), work->n, work->l(), &work->length,
                  info.get(), work->batch));
  work->reserve_numbers();
  return [=] {
    work->restore();
    const auto solve = of_type<T>(cusolverDnSsyevjBatched, cusolverDnDsyevjBatched);
    KEEL_CHECK(solve(handle(), kVectors, kLower, work->n, work->m(), work->n, work->l(),
                     work->scratch(), work->length, work->status(), info.get(), work->batch));
  };
}

template <typename T>
std::function<void()> syevj(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work<T>>(matrices);
  const Jacobi info = jacobi();
  const auto size = of_type<T>(cusolverDnSsyevj_bufferSize, cusolverDnDsyevj_bufferSize);
  KEEL_CHECK(size(handle(), kVectors, kLower, work->n, work->m(), work->n, work->l(), &work->length,
                  info.get()));
  work->reserve_numbers();
  return [=] {
    work->restore();
    const auto solve = of_type<T>(cusolverDnSsyevj, cusolverDnDsyevj);
    for (int b = 0; b < work->batch; ++b)
      KEEL_CHECK(solve(handle(), kVectors, kLower, work->n, work->m(b), work->n, work->l(b),
                       work->scratch(), work->length, work->status(), info.get()));
  };
}

template <typename T>
std::function<void()> syevd(const std::shared_ptr<Work<T>>& work) {
  const auto size = of_type<T>(cusolverDnSsyevd_bufferSize, cusolverDnDsyevd_bufferSize);
  KEEL_CHECK(
      size(handle(), kVectors, kLower, work->n, work->m(), work->n, work->l(), &work->length));
  work->reserve_numbers();
  return [=] {
    work->restore();
    const auto solve = of_type<T>(cusolverDnSsyevd, cusolverDnDsyevd);
    for (int b = 0; b < work->batch; ++b)
      KEEL_CHECK(solve(handle(), kVectors, kLower, work->n, work->m(b), work->n, work->l(b),
                       work->scratch(), work->length, work->status()));
  };
}

template <typename T>
std::function<void()> syevdx(const torch::Tensor& matrices) {
  const auto work = std::make_shared<Work<T>>(matrices);
  constexpr auto kAll = CUSOLVER_EIG_RANGE_ALL;
  int found = 0;
  const auto size = of_type<T>(cusolverDnSsyevdx_bufferSize, cusolverDnDsyevdx_bufferSize);
  KEEL_CHECK(size(handle(), kVectors, kAll, kLower, work->n, work->m(), work->n, 0, 0, 1, work->n,
                  &found, work->l(), &work->length));
  work->reserve_numbers();
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

}  // namespace keel::bench
