// The operators that layers are made of: moments, cross_moments, affine, layer_matrix.

#include "layers_support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

template <typename... Arguments>
c10::IValue call(const char* name, Arguments&&... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  torch::jit::Stack stack;
  torch::jit::push(stack, std::forward<Arguments>(arguments)...);
  op.callBoxed(&stack);
  return stack.size() == 1 ? stack[0] : c10::ivalue::Tuple::create(stack);
}

/// d/dt loss(x + t direction) at 0, by fourth-order differences.
double slope(const Loss& loss, const Tensor& x, const Tensor& direction) {
  const torch::NoGradGuard no_grad;
  const auto at = [&](double t) { return loss(x + t * direction).item<double>(); };
  return testing::central_difference(at, /*step=*/1e-3);
}

void expect_gradient(const Loss& loss, const Tensor& x, const char* what) {
  const Tensor direction = random(x.sizes(), 77);
  const double ours = (gradient(loss, x) * direction).sum().item<double>();
  EXPECT_NEAR(ours, slope(loss, x, direction), 1e-9 * (1 + std::abs(ours))) << what;
  // The second derivative: differentiates |dL/dx|^2.
  const Loss second = [&](const Tensor& y) {
    const torch::AutoGradMode enabled(true);
    const Tensor z = y.requires_grad() ? y : y.detach().clone().requires_grad_(true);
    return torch::autograd::grad({loss(z)}, {z}, {}, true, true)[0].square().sum();
  };
  const double twice = (gradient(second, x) * direction).sum().item<double>();
  EXPECT_NEAR(twice, slope(second, x, direction), 1e-7 * (1 + std::abs(twice))) << what;
}

TEST(Moments, AgreeWithPlainOperators) {
  for (const std::int64_t groups : {1, 2, 3, 6}) {
    const Tensor x = activations({5, 6, 3, 7});
    const auto [mean, covariance] = moments(x, groups);
    EXPECT_LT(relative_error(mean, x.mean({0, 2, 3})), 1e-14);
    EXPECT_LT(relative_error(covariance, covariance_of(x, groups)), 1e-14);
  }
}

TEST(Moments, DifferentiateToAnyOrder) {
  const Tensor x = activations({4, 6, 3}), wm = random({6}, 3), wc = random({2, 3, 3}, 4);
  const auto squared = [](const Tensor& t) { return (t * t * t).sum(); };
  expect_gradient([&](const Tensor& y) { return squared(moments(y, 2).covariance * wc); }, x,
                  "covariance");
  expect_gradient([&](const Tensor& y) { return squared(moments(y, 2).mean * wm); }, x, "mean");
  expect_gradient(
      [&](const Tensor& y) {
        const auto [mean, covariance] = moments(y, 2);
        return (covariance * wc).sum() * (mean * wm).sum();
      },
      x, "both");
}

TEST(Affine, AgreesWithPlainOperators) {
  const Tensor x = activations({5, 6, 3, 7}), center = random({6}, 2), bias = random({6}, 3);
  for (const std::int64_t groups : {1, 2, 6}) {
    const Tensor matrix = random({groups, 6 / groups, 6 / groups}, 4);
    const auto plain = [&](bool centred, bool biased) {
      Tensor columns = as_columns(x, groups);
      if (centred) columns = columns - center.view({groups, -1, 1});
      columns = matrix.matmul(columns);
      if (biased) columns = columns + bias.view({groups, -1, 1});
      return like_activations(columns, x);
    };
    EXPECT_LT(relative_error(affine(x, matrix, center, bias), plain(true, true)), 1e-14);
    EXPECT_LT(relative_error(affine(x, matrix), plain(false, false)), 1e-14);
    EXPECT_LT(relative_error(affine(x, matrix, {}, bias), plain(false, true)), 1e-14);
  }
}

TEST(Affine, DifferentiatesInEveryInputToAnyOrder) {
  const Tensor x = activations({4, 6, 3}), a = random({2, 3, 3}, 2), k = random({6}, 3),
               b = random({6}, 4);
  const auto cubed = [](const Tensor& t) { return (t * t * t).sum(); };
  expect_gradient([&](const Tensor& y) { return cubed(affine(y, a, k, b)); }, x, "input");
  expect_gradient([&](const Tensor& y) { return cubed(affine(x, y, k, b)); }, a, "matrix");
  expect_gradient([&](const Tensor& y) { return cubed(affine(x, a, y, b)); }, k, "center");
  expect_gradient([&](const Tensor& y) { return cubed(affine(x, a, k, y)); }, b, "bias");
}

TEST(Affine, KeepsTheInputOnlyForWhoNeedsIt) {
  const Tensor x = activations({2, 4, 3}).requires_grad_(true);
  const Tensor matrix = random({1, 4, 4}, 2), grad = random({2, 4, 3}, 3);
  const auto run = [&](const Tensor& a) {
    Tensor y = x * 1;
    const Tensor out = affine(y, a);
    y.detach().mul_(0);  // would be noticed by a node that saved it
    return torch::autograd::grad({out}, {x}, {grad})[0];
  };
  EXPECT_LT(relative_error(run(matrix), affine(grad, matrix.mT())), 1e-14);
  EXPECT_TRUE(fails_with("modified by an inplace operation",
                         [&] { run(matrix.clone().requires_grad_(true)); }));
}

TEST(LayerMatrix, OperatorAgreesWithTheLayersPlainForm) {
  const Tensor covariance = covariance_of(activations({40, 6}), 2);
  const auto [s, values, vectors, rank] = layer_matrix(covariance, Zca{1e-4, FullRank{}});
  EXPECT_LT(relative_error(s, inv_sqrtm(covariance + 1e-4 * torch::eye(3, at::kDouble))), 1e-13);
  EXPECT_TRUE(torch::equal(rank, torch::full({2}, 3, at::kLong)));
  EXPECT_LT(
      relative_error(covariance.matmul(vectors) + 1e-4 * vectors, vectors * values.unsqueeze(-2)),
      1e-13);
  EXPECT_FALSE(values.requires_grad());
}

TEST(LayerMatrix, HasNoSecondDerivativeAndSaysSo) {
  const Tensor covariance = covariance_of(activations({40, 4})).requires_grad_(true);
  const Tensor first = torch::autograd::grad({layer_matrix(covariance, Zca{}).matrix.sum()},
                                             {covariance}, {}, true, true)[0];
  EXPECT_TRUE(all_finite(first));
  EXPECT_TRUE(fails_with("keel::layer_matrix: no second derivative of zca(eps=",
                         [&] { torch::autograd::grad({first.sum()}, {covariance}); }));
}

TEST(LayerMatrix, AlgorithmOneWithoutEpsTakesTheMaps) {
  // The eigenvalue 1e-3 of M equals the map's eps, so it is not above it.
  const Tensor covariance = torch::diag(torch::tensor({1.0, 0.5, 0.0}, at::kDouble));
  const auto rank = [&](const char* map) {
    const auto found = call("keel::layer_matrix", covariance, map, "exact");
    return found.toTupleRef().elements()[3].toTensor().item<std::int64_t>();
  };
  EXPECT_EQ(rank("zca(eps=0.001)"), 2);
  EXPECT_EQ(rank("zca(eps=0.001, rank=algorithm1)"), 2);
  EXPECT_EQ(rank("zca(eps=0.001, rank=algorithm1(eps=1e-4, energy=off))"), 3);
  EXPECT_EQ(layer_matrix(covariance, Zca{.eps = 1e-3}).rank.item<std::int64_t>(), 2);
}

TEST(Stages, MetaTensorsGiveShapes) {
  const auto meta = at::TensorOptions(at::kMeta);
  const Tensor x = torch::empty({4, 6, 5, 3}, meta.dtype(at::kHalf));
  const Tensor last = torch::empty({4, 5, 3, 6}, meta).movedim(-1, 1);
  const auto [mean, covariance] = moments(x, 2);
  EXPECT_EQ(mean.scalar_type(), at::kFloat);
  EXPECT_EQ(covariance.sizes(), (std::vector<std::int64_t>{2, 3, 3}));
  const auto out = whiten(last, {}, {}, 3, Zca{});
  EXPECT_EQ(out.output.strides(), last.strides());
  EXPECT_EQ(out.layer_matrix.sizes(), (std::vector<std::int64_t>{3, 2, 2}));
  EXPECT_EQ(out.covariance.sizes(), (std::vector<std::int64_t>{3, 2, 2}));
  EXPECT_EQ(out.rank.sizes(), (std::vector<std::int64_t>{3}));
}

TEST(Stages, ErrorsNameTheOperatorWhatWasExpectedAndWhatCame) {
  const Tensor x = activations({4, 6, 5});
  EXPECT_TRUE(fails_with(
      "keel::moments: expected a number of groups that divides the channels, got 4 groups of 6",
      [&] { moments(x, 4); }));
  EXPECT_TRUE(fails_with("keel::moments: expected input (N, C, *), got (6)",
                         [&] { moments(x[0][0].new_zeros({6})); }));
  EXPECT_TRUE(fails_with("keel::moments: expected float16, bfloat16, float32 or float64, got int64",
                         [&] { moments(x.to(at::kLong)); }));
  EXPECT_TRUE(
      fails_with("keel::affine: expected matrix (G, d, d) with G * d channels of (4, 6, 5), "
                 "got (1, 5, 5)",
                 [&] {
                   affine(x, torch::zeros({1, 5, 5}));
                 }));
  EXPECT_TRUE(fails_with(
      "keel::affine: expected bias with one number per channel of (4, 6, 5), got (5)", [&] {
        affine(x, torch::zeros({1, 6, 6}), {}, torch::zeros({5}));
      }));
  EXPECT_TRUE(fails_with(
      "keel::whiten: expected more than 1 value per channel when training, got input size (1, 6)",
      [&] {
        whiten(torch::zeros({1, 6}), {}, {}, 1, Zca{});
      }));
  EXPECT_TRUE(fails_with("got input size (0, 6, 4)", [&] {
    whiten(torch::zeros({0, 6, 4}), {}, {}, 1, Zca{});
  }));
  EXPECT_TRUE(fails_with("expected eps to be a finite number >= 0, got \"-1\"",
                         [&] { whiten(x, {}, {}, 1, Zca{-1}); }));
  EXPECT_TRUE(fails_with("expected zca, pca_denoising or pca_whitening, got \"zac\"",
                         [&] { call("keel::layer_matrix", covariance_of(x), "zac", "exact"); }));
}

}  // namespace
}  // namespace keel::test
