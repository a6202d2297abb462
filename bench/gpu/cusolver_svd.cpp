#include <memory>

#include "cusolver.h"
#include "cusolver_peer.h"

namespace keel::bench {
namespace {

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

std::vector<Peer> cusolver_svd_peers(const torch::Tensor& matrices) {
  const auto copy = std::make_shared<SvdWork>(matrices);
  std::vector<Peer> peers{{"copy", [=] { copy->restore(); }},
                          {"gesvdaStridedBatched", gesvda_batched(matrices)}};
  if (matrices.size(1) <= 32) peers.push_back({"gesvdjBatched", gesvdj_batched(matrices)});
  return peers;
}

}  // namespace keel::bench
