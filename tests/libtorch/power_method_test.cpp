#include "support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

TEST(PowerMethod, ConvergesOnWellSeparatedSpectra) {
  for (const std::int64_t n : {1, 2, 5, 8}) {
    const Tensor m = torch::stack({geometric_spectrum(n, 0.3, 1), geometric_spectrum(n, 0.2, 2)});
    const auto [values, vectors] = power_method(m, {.iterations = 60});
    const auto exact = leading_first(m);
    EXPECT_LT(relative_error(values, exact.eigenvalues), 1e-12);
    const Tensor overlap = exact.eigenvectors.mT().matmul(vectors).abs();
    EXPECT_LT(relative_error(overlap, torch::eye(n, at::kDouble).expand_as(overlap)), 1e-8);
  }
}

TEST(PowerMethod, FindsTheLargestMagnitudeFirst) {
  const auto [values, vectors] = power_method(with_spectrum({1, 0.1, -3}), {.iterations = 60});
  EXPECT_LT(relative_error(values, torch::tensor({-3.0, 1.0, 0.1}, at::kDouble)), 1e-12);
}

TEST(PowerMethod, TheSeedDecidesAndNothingElse) {
  const Tensor a = random({3, 6, 6}, 1), m = a.matmul(a.mT());
  const PowerMethod three_steps{.iterations = 3, .seed = 7};
  const auto first = power_method(m, three_steps);
  torch::manual_seed(123);
  torch::randn({100});
  EXPECT_TRUE(torch::equal(first.eigenvectors, power_method(m, three_steps).eigenvectors));
  // Not converged: another start is another answer, and a batch-mate is not.
  EXPECT_GT(relative_error(power_method(m, {.iterations = 3, .seed = 8}).eigenvectors,
                           first.eigenvectors),
            1e-3);
  EXPECT_LT(relative_error(power_method(m[1], three_steps).eigenvectors, first.eigenvectors[1]),
            1e-9);
  // After one step from start s, v = M s / |M s|: with M = I it shows the start itself.
  const Tensor identity = torch::eye(3, at::kDouble);
  const Tensor v = power_method(identity, {.iterations = 1, .seed = 0}).eigenvectors.select(-1, 0);
  const Tensor known =
      torch::tensor({0.09754150854368901, -0.6611653012920322, -0.74387236706201}, at::kDouble);
  EXPECT_LT(relative_error(v, known), 1e-12);
}

TEST(PowerMethod, UnrolledGradientsAgreeWithDifferences) {
  const Tensor m = with_spectrum({2, 1, 0.4, 0.1}), weight = random({4, 4}, 2);
  // Few iterations: the gradient of the unfinished iteration, not of the eigenvectors.
  for (const std::int64_t iterations : {2, 19}) {
    const Loss loss = [&](const Tensor& a) {
      const auto [values, vectors] = power_method(a, {.iterations = iterations});
      return values.pow(2).sum() + (vectors * weight).sum();
    };
    const Tensor ours = gradient(loss, m);
    EXPECT_TRUE(torch::allclose(ours, ours.t()));
    EXPECT_LT(relative_error(ours, difference_gradient(loss, m)), 1e-7) << iterations;
  }
}

TEST(PowerMethod, ShapesTypesAndErrors) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0, 0}, {2, 0, 0}, {0, 3, 3}, {1, 1}, {2, 3, 4, 4}}) {
    const auto [values, vectors] = power_method(random_symmetric(shape, 1));
    EXPECT_EQ(vectors.sizes(), shape);
    EXPECT_EQ(values.sizes(), at::IntArrayRef(shape).slice(0, shape.size() - 1));
  }
  const auto half = power_method(geometric_spectrum(3, 0.3).to(at::kHalf).requires_grad_(true));
  EXPECT_EQ(half.eigenvalues.scalar_type(), at::kHalf);
  EXPECT_TRUE(half.eigenvalues.requires_grad());
  EXPECT_TRUE(power_method(torch::empty({4, 4}, at::kMeta)).eigenvectors.is_meta());
  EXPECT_TRUE(fails_with("keel::power_method: expected iterations >= 1, got 0",
                         [] { power_method(torch::eye(2), {.iterations = 0}); }));
  EXPECT_TRUE(fails_with("keel::power_method: expected (..., n, n), got (2, 3)", [] {
    power_method(torch::zeros({2, 3}));
  }));
}

}  // namespace
}  // namespace keel::test
