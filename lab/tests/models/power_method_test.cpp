#include "lab/models/power_method.h"

#include <gtest/gtest.h>

#include "lab/train/graph.h"
#include "libtorch/cuda_support.h"
#include "support/errors.h"

namespace keel::test {
namespace {

using lab::has_cuda;
using lab::power_method;
using lab::PowerMethod;

TEST(PowerMethod, ConvergesOnWellSeparatedSpectra) {
  for (const std::int64_t n : {1, 2, 5, 8}) {
    const Tensor m = torch::stack({geometric_spectrum(n, 0.3, 1), geometric_spectrum(n, 0.2, 2)});
    const auto [values, vectors] = power_method(m, {.iterations = 60});
    const auto [exact_values, exact_vectors] = torch_eigh(m);
    EXPECT_LT(relative_error(values, exact_values), 1e-12);
    const Tensor overlap = exact_vectors.mT().matmul(vectors).abs();
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
  const auto vectors_of = [](const Tensor& matrix, const PowerMethod& options) {
    return std::get<1>(power_method(matrix, options));
  };
  const Tensor first = vectors_of(m, three_steps);
  torch::manual_seed(123);
  torch::randn({100});
  EXPECT_TRUE(torch::equal(first, vectors_of(m, three_steps)));
  // Not converged: the answer depends on the start, but not on other matrices of the batch.
  EXPECT_GT(relative_error(vectors_of(m, {.iterations = 3, .seed = 8}), first), 1e-3);
  EXPECT_LT(relative_error(vectors_of(m[1], three_steps), first[1]), 1e-9);
  // After one step from start s, v = M s / |M s|. With M = I this is the start itself.
  const Tensor identity = torch::eye(3, at::kDouble);
  const Tensor v = vectors_of(identity, {.iterations = 1, .seed = 0}).select(-1, 0);
  const Tensor known =
      torch::tensor({0.09754150854368901, -0.6611653012920322, -0.74387236706201}, at::kDouble);
  EXPECT_LT(relative_error(v, known), 1e-12);
}

TEST(PowerMethod, UnrolledGradientsAgreeWithDifferences) {
  const Tensor m = with_spectrum({2, 1, 0.4, 0.1}), weight = random({4, 4}, 2);
  // With few iterations: the gradient of the unfinished iteration, not of the eigenvectors.
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

TEST(PowerMethod, ShapesAndErrors) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0, 3, 3}, {1, 1}, {2, 3, 4, 4}}) {
    const auto [values, vectors] = power_method(random_symmetric(shape, 1));
    EXPECT_EQ(vectors.sizes(), shape);
    EXPECT_EQ(values.sizes(), at::IntArrayRef(shape).slice(0, shape.size() - 1));
  }
  EXPECT_TRUE(keel::testing::refuses({"power_method", "iterations"},
                                     [] { power_method(torch::eye(2), {.iterations = 0}); }));
  EXPECT_TRUE(fails_with("keel::lab::power_method: expected (..., n, n), got [2, 3]", [] {
    power_method(torch::zeros({2, 3}));
  }));
}

TEST(PowerMethod, StartsFromTheSameVectorsOnAGpu) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Tensor x = random({4, 4, 12}, 1);
  expect_twins(
      "power_method",
      [](const Tensors& in) {
        const auto [values, vectors] = power_method(in[0], {5, 3});
        return Tensors{values, vectors};
      },
      {x.matmul(x.mT()) / 12}, 1e4);
}

}  // namespace
}  // namespace keel::test
