#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <chrono>
#include <thread>

#include "add.h"
#include "cases.h"
#include "eigen_peer.h"
#include "keel/torch/keel.h"
#include "torch_threads.h"

namespace keel::bench {
namespace {

/// Covariances of 2n samples, as a whitening layer meets them.
torch::Tensor covariances(std::int64_t batch, std::int64_t n,
                          torch::ScalarType type = torch::kFloat32) {
  torch::manual_seed(n * 100003 + batch);
  const torch::Tensor samples = torch::randn({batch, n, 2 * n}, type);
  return samples.matmul(samples.transpose(1, 2)) / double(2 * n);
}

/// So many threads for all peers while it lives. at::set_num_threads makes new workers, also for the same number. They
/// spin for tens of milliseconds, on a core that the next benchmark needs, so a change waits for them.
class Threads {
 public:
  explicit Threads(int count) { change_to(count); }
  ~Threads() { change_to(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  static void change_to(int count) {
    if (count == at::get_num_threads()) return;
    at::set_num_threads(count);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  }

  int before_ = at::get_num_threads();
};

/// torch's is the LAPACK that it was built with.
void register_forward(std::int64_t n, std::int64_t batch, int threads, torch::ScalarType type) {
  std::string pass = type == torch::kFloat64 ? "forward in float64" : "forward";
  if (threads != at::get_num_threads()) pass += fmt::format(", threads={}", threads);
  const std::string name = fmt::format("eigh/{}/n={}/batch={}/", pass, n, batch);
  add(name + "keel", [=](benchmark::State& state) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor m = covariances(batch, n, type);
    const Threads limit(threads);
    for (auto _ : state) benchmark::DoNotOptimize(keel::eigh(m));
  });
  add(name + "torch", [=](benchmark::State& state) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor m = covariances(batch, n, type);
    const Threads limit(threads);
    for (auto _ : state) benchmark::DoNotOptimize(torch::linalg_eigh(m, "L"));
  });
  if (type != torch::kFloat32) return;
  add(name + "Eigen", [=](benchmark::State& state) {
    const torch::Tensor m = covariances(batch, n);
    const Threads limit(threads);
    const torch::Tensor values = torch::empty({batch, n}), vectors = torch::empty_like(m);
    const float* in = m.data_ptr<float>();
    float *l = values.data_ptr<float>(), *v = vectors.data_ptr<float>();
    for (auto _ : state)
      on_torch_threads(
          batch, [&](std::int64_t b) { eigen_eigh(n, in + b * n * n, l + b * n, v + b * n * n); });
  });
}

template <typename Decompose>
void forward_backward(benchmark::State& state, std::int64_t n, std::int64_t batch,
                      Decompose decompose) {
  const torch::Tensor m = covariances(batch, n).requires_grad_();
  const torch::Tensor values_weight = torch::randn({batch, n}),
                      weight = torch::randn({batch, n, n});
  for (auto _ : state) {
    const auto [values, vectors] = decompose(m);
    benchmark::DoNotOptimize(
        torch::autograd::grad({values, vectors}, {m}, {values_weight, weight}));
  }
}

void register_backward(std::int64_t n, std::int64_t batch, const GradientRule& rule) {
  const std::string name =
      fmt::format("eigh/forward+backward {}/n={}/batch={}/", to_string(rule), n, batch);
  add(name + "keel", [=](benchmark::State& state) {
    forward_backward(state, n, batch, [&](const torch::Tensor& m) { return keel::eigh(m, rule); });
  });
  add(name + "torch", [=](benchmark::State& state) {
    forward_backward(state, n, batch,
                     [](const torch::Tensor& m) { return torch::linalg_eigh(m, "L"); });
  });
}

bool fits(std::int64_t n, std::int64_t batch) {
  return batch * n * n <= (effort().full ? 4096 : 256) * 64 * 64;
}

}  // namespace

void register_eigh() {
  const int all = at::get_num_threads();
  std::vector<int> threads{all};
  if (effort().full)
    for (const int fewer : {8, 4, 2, 1})
      if (fewer < all) threads.push_back(fewer);
  for (const int count : threads)
    for (const std::int64_t n : {3, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048})
      for (const std::int64_t batch : {1, 16, 64, 256, 4096}) {
        if (!fits(n, batch) || (batch == 64 && !effort().full)) continue;
        register_forward(n, batch, count, torch::kFloat32);
        if (effort().full && batch <= 64) register_forward(n, batch, count, torch::kFloat64);
      }
  for (const std::int64_t n : {4, 8, 16, 32, 64, 128, 256})
    for (const std::int64_t batch : {1, 16, 256})
      if (fits(n, batch)) register_backward(n, batch, PowerIteration{});
  if (!effort().full) return;
  for (const GradientRule& rule :
       std::initializer_list<GradientRule>{Analytic{}, Taylor{}, Lorentzian{}, Masked{}})
    for (const std::int64_t n : {4, 8, 16, 32, 64}) register_backward(n, 256, rule);
}

std::vector<AccuracyRow> eigh_accuracy() {
  const torch::NoGradGuard no_grad;
  std::vector<AccuracyRow> rows;
  fmt::print(
      "\neigh accuracy, worst of the batch: keel against LAPACK (ratio; below 1 keel is closer)\n");
  for (const std::int64_t n : {4, 8, 16, 32, 64, 128, 256, 512}) {
    const torch::Tensor m = covariances(n <= 64 ? 64 : 16, n), exact = m.to(torch::kFloat64);
    const auto errors = [&](const torch::Tensor& values, const torch::Tensor& vectors) {
      const torch::Tensor v = vectors.to(torch::kFloat64), l = values.to(torch::kFloat64);
      const auto worst = [](const torch::Tensor& x) { return x.flatten(1).norm(2, 1); };
      const torch::Tensor residual = worst(exact.matmul(v) - v * l.unsqueeze(1)) / worst(exact);
      const torch::Tensor identity = torch::eye(n, torch::kFloat64);
      return Errors{residual.max().item<double>(),
                    worst(v.transpose(1, 2).matmul(v) - identity).max().item<double>()};
    };
    const auto own = keel::eigh(m);
    const auto lapack = torch::linalg_eigh(m, "L");
    rows.push_back(accuracy_row("n", std::to_string(n), errors(own.eigenvalues, own.eigenvectors),
                                errors(std::get<0>(lapack), std::get<1>(lapack))));
  }
  return rows;
}

}  // namespace keel::bench
