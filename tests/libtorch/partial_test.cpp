// eigsh and svds in C++. What they compute is tested in tests/python/test_partial.py; here, that C++ reaches it.

#include "keel/torch/partial.h"

#include <gtest/gtest.h>

#include "keel/torch/eigh.h"
#include "keel/torch/svd.h"

namespace keel::testing {
namespace {

/// Eigenvalues 1, 1/2, 1/3, ... of alternating sign.
torch::Tensor decaying(std::int64_t n) {
  torch::manual_seed(1);
  const auto values = 1 / torch::arange(1, n + 1, torch::kDouble);
  const auto signs = 1 - 2 * (torch::arange(n, torch::kDouble).remainder(2));
  const auto q = std::get<0>(torch::linalg_qr(torch::randn({n, n}, torch::kDouble)));
  const auto m = (q * (values * signs)).matmul(q.mT());
  return (m + m.mT()) / 2;
}

TEST(Partial, TheLargestOfADenseMatrixWithTheirGradient) {
  const auto m = decaying(300).requires_grad_();
  const auto few = keel::eigsh(m, 4, {.which = "LA"});
  const auto all = keel::eigh(m);
  EXPECT_TRUE(torch::allclose(few.eigenvalues, all.eigenvalues.narrow(0, 296, 4)));
  EXPECT_LT(few.residual.item<double>(), 2e-12);
  EXPECT_GT(few.gap.item<double>(), 0.01);
  const auto vectors = all.eigenvectors.narrow(1, 296, 4);
  const auto ours = torch::autograd::grad({few.eigenvectors.pow(4).sum()}, {m})[0];
  const auto truth = torch::autograd::grad({vectors.pow(4).sum()}, {m})[0];
  EXPECT_LT(((ours - truth).norm() / truth.norm()).item<double>(), 1e-9);
}

TEST(Partial, AnOperatorPassesGradientsOn) {
  const auto a = decaying(300);
  auto scale = torch::tensor(2.0, torch::kDouble).requires_grad_();
  const keel::LinearOperator map{{300, 300},
                                 [&](const torch::Tensor& x) { return scale * a.matmul(x); },
                                 [&](const torch::Tensor& x) { return scale * a.mT().matmul(x); },
                                 torch::kDouble};
  const auto found = keel::svds(map, 3);
  EXPECT_TRUE(torch::allclose(found.S, 2 * keel::svdvals(a).narrow(0, 0, 3)));
  found.S.sum().backward();
  EXPECT_NEAR(scale.grad().item<double>(), found.S.sum().item<double>() / 2, 1e-10);
  EXPECT_THROW(keel::svds(keel::LinearOperator{{300, 300}, map.apply, {}, torch::kDouble}, 3),
               c10::Error);
}

TEST(Partial, NotEnoughStepsIsAnErrorUnlessAReportIsWanted) {
  const auto m = torch::diag(torch::linspace(1, 2, 400));
  EXPECT_THROW(keel::eigsh(m, 2, {.maxiter = 2}), c10::Error);
  EXPECT_GT(keel::eigsh(m, 2, {.maxiter = 2, .report = true}).residual.item<double>(), 1e-3);
  EXPECT_THROW(keel::eigsh(m, 2, {.which = "BE"}), c10::Error);
}

}  // namespace
}  // namespace keel::testing
