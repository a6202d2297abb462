// Every layer's forward and backward against finite differences and plain autograd.

#include "layers_support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

constexpr std::int64_t kGroups = 2;

struct Gradients {
  Tensor output, input, weight, bias;
};

Gradients gradients(const std::function<Tensor(const Tensor&)>& layer, const Tensor& x,
                    const Tensor& weight, const Tensor& bias, const Tensor& dL_doutput) {
  const Tensor input = x.detach().clone().requires_grad_(true);
  const Tensor output = layer(input);
  const auto grads = torch::autograd::grad({output}, {input, weight, bias}, {dL_doutput});
  return {output.detach(), grads[0], grads[1], grads[2]};
}

void expect_same(const Gradients& ours, const Gradients& truth, double tolerance,
                 const std::string& what) {
  EXPECT_LT(relative_error(ours.output, truth.output), tolerance) << what << " output";
  EXPECT_LT(relative_error(ours.input, truth.input), tolerance) << what << " dL_dinput";
  EXPECT_LT(relative_error(ours.weight, truth.weight), tolerance) << what << " dL_dweight";
  EXPECT_LT(relative_error(ours.bias, truth.bias), tolerance) << what << " dL_dbias";
}

void compare_with_plain(const SpectralRule& rule, std::int64_t kept, const Decompose& decompose,
                        double tolerance) {
  const Tensor x = activations({7, 8, 3, 3}), dL_doutput = random(x.sizes(), 5);
  nn::WhiteningOptions options{.num_features = 8, .groups = kGroups, .rule = rule};
  options.rank = LeadingCount{kept};
  for (const Layer& layer : layers(options)) {
    layer->to(at::kDouble);
    scramble(layer);
    const Gradients ours = gradients(layer, x, layer->weight, layer->bias, dL_doutput);
    const Gradients truth = gradients(
        [&](const Tensor& y) {
          return plain_layer(layer.map, y, layer->weight, layer->bias, kGroups, kept, decompose);
        },
        x, layer->weight, layer->bias, dL_doutput);
    expect_same(ours, truth, tolerance,
                layer.name + " " + to_string(rule) + " kept " + std::to_string(kept));
  }
}

/// torch's eigenvectors with keel's signs: the entry of largest magnitude is positive.
std::pair<Tensor, Tensor> torch_eigh_in_our_signs(const Tensor& m) {
  const auto [values, vectors] = torch_eigh(m);
  const Tensor place = vectors.detach().abs().argmax(-2, /*keepdim=*/true);
  return {values, vectors * vectors.detach().gather(-2, place).sign()};
}

TEST(LayerGradients, EqualPlainAutogradThroughTorchsEigh) {
  for (const std::int64_t kept : {4, 2, 1})
    for (const SpectralRule& rule :
         std::initializer_list<SpectralRule>{Exact{5000}, Analytic{}, Masked{}})
      compare_with_plain(rule, kept, torch_eigh_in_our_signs, 1e-11);
}

TEST(LayerGradients, EqualPlainAutogradThroughKeelsEighUnderEachRule) {
  const std::vector<GradientRule> rules{Analytic{}, PowerIteration{}, PowerIteration{3},
                                        Taylor{},   Lorentzian{0.1},  Masked{}};
  for (const std::int64_t kept : {4, 2})
    for (const GradientRule& rule : rules)
      compare_with_plain(
          std::visit([](const auto& r) -> SpectralRule { return r; }, rule), kept,
          [&](const Tensor& m) {
            const auto [values, vectors] = leading_first(m, rule);
            return std::pair(values, vectors);
          },
          1e-11);
}

void expect_differences(const Layer& layer, const Tensor& x, double tolerance) {
  const Tensor dL_doutput = random(x.sizes(), 5);
  const Gradients ours = gradients(layer, x, layer->weight, layer->bias, dL_doutput);
  const torch::NoGradGuard no_grad;
  const auto check = [&](const Tensor& moved, const Tensor& grad, const char* what) {
    const Tensor direction = random(moved.sizes(), 9), start = moved.clone();
    const Tensor input = moved.is_same(x) ? x.clone() : x;
    const double expected = testing::central_difference(
        [&](double t) {
          if (moved.is_same(x))
            input.copy_(start + t * direction);
          else
            moved.copy_(start + t * direction);
          return (layer(input) * dL_doutput).sum().item<double>();
        },
        1e-4);
    if (!moved.is_same(x)) moved.copy_(start);
    const double got = (grad * direction).sum().item<double>();
    EXPECT_NEAR(got, expected, tolerance * (grad.norm() * direction.norm()).item<double>())
        << layer.name << ' ' << what;
  };
  check(x, ours.input, "input");
  check(layer->weight, ours.weight, "weight");
  check(layer->bias, ours.bias, "bias");
}

TEST(LayerGradients, AgreeWithDifferences) {
  for (const std::optional<RankPolicy>& rank :
       {std::optional<RankPolicy>(), std::optional<RankPolicy>(FullRank{}),
        std::optional<RankPolicy>(LeadingCount{2})})
    for (const SpectralRule& rule : std::initializer_list<SpectralRule>{
             Exact{5000}, Analytic{}, Masked{}, PowerIteration{5000}, Taylor{5000}})
      for (const Layer& layer :
           layers({.num_features = 6, .groups = kGroups, .rule = rule, .rank = rank})) {
        layer->to(at::kDouble);
        scramble(layer);
        expect_differences(layer, activations({8, 6, 2, 3}), 1e-8);
      }
}

TEST(LayerGradients, AgreeWithDifferencesWithoutAnyGap) {
  // The covariance is the identity up to rounding, so no eigenvector is determined.
  nn::ZcaWhitening first({.num_features = 6, .eps = 0});
  first->to(at::kDouble);
  const Tensor x = first(activations({8, 6, 2, 3})).detach();
  ASSERT_LT(relative_error(covariance_of(x)[0], torch::eye(6, at::kDouble)), 1e-12);
  const Layer zca = layers({.num_features = 6, .rank = FullRank{}})[0];
  zca->to(at::kDouble);
  scramble(zca);
  expect_differences(zca, x, 1e-9);
}

TEST(LayerGradients, OfEvaluationAgreeWithPlainAutograd) {
  for (const Layer& layer : layers({.num_features = 6, .groups = kGroups})) {
    layer->to(at::kDouble);
    scramble(layer);
    layer(activations({8, 6, 5}, 1));
    layer(activations({8, 6, 5}, 2));
    layer->eval();
    const Tensor x = activations({4, 6, 5}, 3), dL_doutput = random(x.sizes(), 5);
    const auto plain = [&](const Tensor& y) {
      Tensor s = layer->running_matrix;
      if (layer.name == "denoising")
        s = s * (layer->running_variance + 1e-4).rsqrt().view({kGroups, 1, -1});
      const Tensor centred = as_columns(y, kGroups) - layer->running_mean.view({kGroups, -1, 1});
      return like_activations(s.matmul(centred) * layer->weight.view({kGroups, -1, 1}) +
                                  layer->bias.view({kGroups, -1, 1}),
                              y);
    };
    expect_same(gradients(layer, x, layer->weight, layer->bias, dL_doutput),
                gradients(plain, x, layer->weight, layer->bias, dL_doutput), 1e-12, layer.name);
  }
}

TEST(LayerGradients, ComeTwiceFromOneGraphAndFromTwoStepsInARow) {
  for (const Layer& layer : layers({.num_features = 6, .groups = kGroups})) {
    const Tensor x = activations({8, 6, 5}, 1, at::kFloat).requires_grad_(true);
    const Tensor loss = layer(x).square().sum();
    const Tensor first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
    const Tensor second = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
    EXPECT_TRUE(torch::equal(first, second)) << layer.name;
    for (const Tensor& buffer : layer->buffers()) {
      EXPECT_FALSE(buffer.requires_grad()) << layer.name;
      EXPECT_TRUE(buffer.is_leaf()) << layer.name;
    }
    // The buffers have changed since, but the graph of the earlier step must not depend on them.
    layer(activations({8, 6, 5}, 2, at::kFloat)).sum().backward();
    EXPECT_TRUE(torch::equal(torch::autograd::grad({loss}, {x})[0], first)) << layer.name;
  }
}

TEST(LayerGradients, OfASecondOrderAreANamedError) {
  nn::ZcaWhitening layer({.num_features = 4});
  const Tensor x = activations({8, 4}, 1, at::kFloat).requires_grad_(true);
  const Tensor first = torch::autograd::grad({layer(x).square().sum()}, {x}, {}, true, true)[0];
  EXPECT_TRUE(all_finite(first));
  EXPECT_TRUE(fails_with("keel::whiten: no second derivative of this map",
                         [&] { first.square().sum().backward(); }));
}

TEST(LayerGradients, ReachOnlyWhatAsksForThem) {
  const Tensor x = activations({8, 4}, 1, at::kFloat);
  nn::ZcaWhitening layer({.num_features = 4});
  layer(x).square().sum().backward();
  EXPECT_TRUE(layer->weight.grad().defined());
  nn::ZcaWhitening plain({.num_features = 4, .affine = false});
  EXPECT_FALSE(plain(x).requires_grad());
  const Tensor y = x.clone().requires_grad_(true);
  plain(y).pow(3).sum().backward();
  EXPECT_TRUE(all_finite(y.grad()));
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(layer(y).requires_grad());
}

}  // namespace
}  // namespace keel::test
