#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "add.h"
#include "cases.h"
#include "keel/torch/keel.h"

namespace keel::bench {
namespace {

using torch::Tensor;

struct Size {
  std::int64_t m, n;
  std::string text() const { return m == n ? std::to_string(n) : fmt::format("{}x{}", m, n); }
};

Tensor normal_matrices(std::int64_t batch, Size size, torch::ScalarType type = torch::kFloat32) {
  torch::manual_seed(size.m * 100003 + size.n * 1009 + batch);
  return torch::randn({batch, size.m, size.n}, type);
}

/// Of a condition of about 1e5, in no basis in particular.
Tensor ill_conditioned_matrices(std::int64_t batch, Size size, torch::ScalarType type) {
  const Tensor basis =
      std::get<0>(torch::linalg_qr(normal_matrices(batch, {size.n, size.n}, type)));
  return (normal_matrices(batch, size, type) * torch::logspace(0, -5, size.n, 10, type))
      .matmul(basis);
}

/// `keel` and `torch` called on the same matrices.
template <typename Own, typename Peer, typename Make = decltype(&normal_matrices)>
void register_pair(const std::string& what, Size size, std::int64_t batch, Own own, Peer peer,
                   torch::ScalarType type = torch::kFloat32, Make make = normal_matrices) {
  const std::string name = fmt::format("svd/{}/n={}/batch={}/", what, size.text(), batch);
  const auto timed = [=](auto call) {
    return [=](benchmark::State& state) {
      const Tensor a = make(batch, size, type);
      for (auto _ : state) call(a);
    };
  };
  add(name + "keel", timed(own));
  add(name + "torch", timed(peer));
}

void register_forward(const char* what, Size size, std::int64_t batch, torch::ScalarType type,
                      decltype(&normal_matrices) make = normal_matrices) {
  register_pair(
      what, size, batch, [](const Tensor& a) { benchmark::DoNotOptimize(keel::svd(a)); },
      [](const Tensor& a) { benchmark::DoNotOptimize(torch::linalg_svd(a, false)); }, type, make);
}

void register_float32(Size size, std::int64_t batch) {
  register_forward("forward", size, batch, torch::kFloat32);
}

void register_float64(Size size, std::int64_t batch) {
  register_forward("forward, float64", size, batch, torch::kFloat64);
}

void register_ill_conditioned(Size size, std::int64_t batch) {
  register_forward("forward, ill-conditioned", size, batch, torch::kFloat32,
                   ill_conditioned_matrices);
}

template <typename Factor>
void factor_and_gradient(const Tensor& matrices, Factor factor) {
  const Tensor a = matrices.detach().requires_grad_();
  const Tensor result = factor(a);
  benchmark::DoNotOptimize(torch::autograd::grad({result}, {a}, {matrices}));
}

Tensor factor_by_torch(const Tensor& a) {
  const auto [u, s, v] = torch::linalg_svd(a, false);
  return u.matmul(v);
}

Tensor rotation_by_torch(const Tensor& a) {
  const auto [u, s, v] = torch::linalg_svd(a, false);
  const Tensor sign = torch::linalg_det(u.matmul(v)).unsqueeze(-1);
  const Tensor signs = torch::cat({torch::ones_like(s.narrow(-1, 0, s.size(-1) - 1)), sign}, -1);
  return (u * signs.unsqueeze(-2)).matmul(v);
}

void register_polar(Size size, std::int64_t batch) {
  register_pair(
      "polar forward+backward", size, batch,
      [](const Tensor& a) { factor_and_gradient(a, keel::procrustes); },
      [](const Tensor& a) { factor_and_gradient(a, factor_by_torch); });
}

void register_rotation(Size size, std::int64_t batch) {
  if (size.m != size.n) return;
  register_pair(
      "rotation forward+backward", size, batch,
      [](const Tensor& a) {
        factor_and_gradient(a,
                            [](const Tensor& x) { return keel::special_procrustes(x).rotation; });
      },
      [](const Tensor& a) { factor_and_gradient(a, rotation_by_torch); });
}

const std::vector<Size> kSizes = {{3, 3},     {8, 8},  {16, 16},  {32, 32}, {64, 64},
                                  {128, 128}, {60, 3}, {1000, 3}, {512, 64}};

}  // namespace

void register_svd() {
  const std::int64_t most = (effort().full ? 256 : 32) * 128 * 128;
  for (const auto& add_cell : {register_float32, register_float64, register_ill_conditioned,
                               register_polar, register_rotation})
    for (const Size& size : kSizes)
      for (const std::int64_t batch : {1, 16, 256, 4096})
        if (size.m * size.n * batch <= most && (batch < 4096 || size.n == 3)) add_cell(size, batch);
}

std::vector<AccuracyRow> svd_accuracy() {
  const torch::NoGradGuard no_grad;
  std::vector<AccuracyRow> rows;
  fmt::print(
      "\nsvd accuracy, worst of the batch: keel against LAPACK (ratio; below 1 keel is closer)\n");
  for (const Size& size : kSizes) {
    const Tensor a = normal_matrices(size.n <= 64 ? 64 : 16, size), exact = a.to(torch::kFloat64);
    const auto errors = [&](const Tensor& left, const Tensor& values, const Tensor& right) {
      const Tensor u = left.to(torch::kFloat64), v = right.to(torch::kFloat64);
      const auto worst = [](const Tensor& x) { return x.flatten(1).norm(2, 1); };
      const Tensor rebuilt = (u * values.to(torch::kFloat64).unsqueeze(1)).matmul(v);
      const Tensor identity = torch::eye(values.size(-1), torch::kFloat64);
      return Errors{
          (worst(exact - rebuilt) / worst(exact)).max().item<double>(),
          torch::maximum(worst(u.mT().matmul(u) - identity), worst(v.matmul(v.mT()) - identity))
              .max()
              .item<double>()};
    };
    const auto own = keel::svd(a);
    const auto lapack = torch::linalg_svd(a, false);
    rows.push_back(
        accuracy_row("svd n", size.text(), errors(own.U, own.S, own.Vh),
                     errors(std::get<0>(lapack), std::get<1>(lapack), std::get<2>(lapack))));
  }
  return rows;
}

}  // namespace keel::bench
