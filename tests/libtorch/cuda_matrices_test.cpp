// The matrix operators on CPU against CUDA. Needs a GPU.

#include "cuda_support.h"

#include <gtest/gtest.h>
#include "support/eigen_quality.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::test {
namespace {

const std::vector<GradientRule> kRules = {Analytic{}, PowerIteration{}, Taylor{}, Lorentzian{1e-2},
                                          Masked{}};

/// A batch of covariances with well-separated eigenvalues: two leading dimensions, odd sizes.
Tensor covariances(std::int64_t n, std::int64_t batch = 3) {
  Tensors all;
  for (std::int64_t b = 0; b < batch; ++b)
    all.push_back(geometric_spectrum(n, std::pow(0.02, 1.0 / double(std::max<std::int64_t>(n, 2))),
                                     std::uint64_t(10 * n + b)));
  return torch::stack(all);
}

/// About the inverse of the smallest relative gap, by which gradients of vectors amplify rounding.
double condition(std::int64_t n) { return 400.0 * double(n + 1); }

Tensors sign_free(const Eigh& e) {
  return {
      e.eigenvalues, e.eigenvectors.square(),
      (e.eigenvectors * (1 + e.eigenvalues.square()).unsqueeze(-2)).matmul(e.eigenvectors.mT())};
}

TEST(CudaMatrices, EighUnderEveryRule) {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 8, 16, 17, 31, 32, 33, 48, 64, 65, 100})
    for (const GradientRule& rule : kRules) {
      if (n > 17 && rule.index() != 1 && rule.index() != 4) continue;
      expect_twins(
          "eigh " + to_string(rule) + " n = " + std::to_string(n),
          [&](const Tensors& in) { return sign_free(eigh(in[0], rule)); }, {covariances(n)},
          condition(n));
    }
}

TEST(CudaMatrices, EighOfTheZooIsAsGoodAsItsContract) {
  for (const std::int64_t n : {1, 2, 5, 16, 33, 64}) {
    const auto zoo = testing::spectrum_zoo<float>(n);
    Tensors all;
    for (const auto& specimen : zoo)
      all.push_back(torch::tensor(specimen.matrix.data).reshape({n, n}));
    const auto [values, vectors] = eigh(on_cuda(torch::stack(all)));
    const Tensor l = on_cpu(values), v = on_cpu(vectors);
    for (std::size_t b = 0; b < zoo.size(); ++b) {
      SCOPED_TRACE(zoo[b].name + ", n = " + std::to_string(n));
      const auto at = std::int64_t(b);
      const auto quality =
          testing::eigen_quality(n, zoo[b].matrix.matrix(0), l[at].contiguous().data_ptr<float>(),
                                 v[at].contiguous().data_ptr<float>());
      EXPECT_LE(quality.orthogonality, testing::rounding<float>(n, 1));
      EXPECT_LE(quality.residual,
                testing::rounding<float>(n, 1) + (zoo[b].name == "denormal" ? 1.0 / 32 : 0));
    }
  }
}

TEST(CudaMatrices, NoGradientOfTheZooBlowsUp) {
  for (const std::int64_t n : {2, 9, 64})
    for (const auto& specimen : testing::spectrum_zoo<float>(n)) {
      if (specimen.name == "denormal" || specimen.name == "tiny") continue;  // 1 / l overflows
      for (const GradientRule& rule : {GradientRule(Masked{}), GradientRule(Lorentzian{})}) {
        SCOPED_TRACE(specimen.name + ", n = " + std::to_string(n) + ", " + to_string(rule));
        const Tensor m = torch::tensor(specimen.matrix.data).reshape({n, n});
        const Tensor leaf = on_cuda(m).requires_grad_(true);
        const auto [values, vectors] = eigh(leaf, rule);
        const Tensor gradient = torch::autograd::grad({values.sum() + vectors.sum()}, {leaf})[0];
        EXPECT_TRUE(all_finite(gradient));
        EXPECT_TRUE(torch::equal(gradient, gradient.mT()));
      }
    }
}

TEST(CudaMatrices, MatesWithNaNStayAlone) {
  Tensor m = covariances(9, 5).to(at::kFloat);
  const auto calm = spectral(on_cuda(m), {SpectralFunction::Kind::inv_sqrt});
  m[2][5][1] = std::numeric_limits<float>::quiet_NaN();
  const auto wild = spectral(on_cuda(m), {SpectralFunction::Kind::inv_sqrt});
  for (const std::int64_t b : {0, 1, 3, 4})
    EXPECT_TRUE(torch::equal(wild.result[b], calm.result[b]));
  EXPECT_TRUE(all_nan(wild.result[2]));
  EXPECT_EQ(wild.kept[2].item<std::int64_t>(), 1);
}

TEST(CudaMatrices, FunctionsUnderEveryRuleAndPolicy) {
  const std::vector<SpectralRule> rules = {Exact{}, PowerIteration{}, Taylor{}, Lorentzian{1e-2},
                                           Masked{}};
  const std::vector<RankPolicy> policies = {FullRank{}, LeadingCount{2}, LeadingEnergy{0.9},
                                            Algorithm1{0.05, 0.1, 0.97}};
  const std::vector<SpectralFunction> functions = {
      {SpectralFunction::Kind::one},       {SpectralFunction::Kind::sqrt},
      {SpectralFunction::Kind::inv_sqrt},  {SpectralFunction::Kind::inv},
      {SpectralFunction::Kind::log},       {SpectralFunction::Kind::exp},
      {SpectralFunction::Kind::power, 0.3}};
  for (const std::int64_t n : {1, 3, 8, 20, 64, 70})
    for (const SpectralFunction& function : functions)
      for (const RankPolicy& policy : policies)
        for (const SpectralRule& rule : rules) {
          if (n > 8 && rule.index() != 0 && policy.index() != 2) continue;
          // The projector on everything is I, so such a rule's gradient is only rounding.
          if (function.kind == SpectralFunction::Kind::one && rule.index() != 0 &&
              (policy.index() == 0 || policy.index() == 3))
            continue;
          expect_twins(
              to_string(function) + " " + to_string(policy) + " " + to_string(rule) +
                  " n = " + std::to_string(n),
              [&](const Tensors& in) {
                const Spectral s = spectral(in[0], function, policy, rule);
                return Tensors{s.result, s.kept};
              },
              {covariances(n, 2)}, condition(n));
        }
}

TEST(CudaMatrices, ExactRuleAtRepeatedEigenvalues) {
  for (const std::int64_t n : {2, 6, 33, 64}) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(1.5 + double(i / 3));
    const Tensor repeated = with_spectrum(values, 3), same = 0.7 * torch::eye(n, at::kDouble);
    for (const auto& function : {sqrtm, inv_sqrtm, invm, logm, expm})
      for (const Tensor& m : {repeated, same})
        expect_twins(
            "n = " + std::to_string(n),
            [&](const Tensors& in) { return Tensors{function(in[0], Exact{})}; }, {m},
            condition(n));
  }
}

TEST(CudaMatrices, SecondDerivatives) {
  const Tensor weight = random_symmetric({2, 5, 5}, 4);
  const auto slope = [&](const Tensor& value, const Tensor& m) {
    return torch::autograd::grad({(value * weight.to(value.device(), value.scalar_type())).sum()},
                                 {m}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  };
  for (const auto& function : {sqrtm, inv_sqrtm, logm, expm})
    expect_twins(
        "function",
        [&](const Tensors& in) { return Tensors{slope(function(in[0], Exact{}), in[0])}; },
        {covariances(5, 2)}, 20 * condition(5));
  for (const GradientRule& rule : kRules)
    expect_twins(
        "eigh " + to_string(rule),
        [&](const Tensors& in) {
          const auto [values, vectors] = eigh(in[0], rule);
          return Tensors{slope((vectors * values.exp().unsqueeze(-2)).matmul(vectors.mT()), in[0])};
        },
        {covariances(5, 2)}, 20 * condition(5));
}

TEST(CudaMatrices, ViewsHalvesAndEmptyShapes) {
  const Tensor wide = random({4, 6, 7}, 1);
  const auto covariance = [](const Tensor& x) { return x.matmul(x.mT()); };
  const Tensor m = covariance(wide);
  expect_twins(
      "transposed", [&](const Tensors& in) { return sign_free(eigh(in[0].mT())); }, {m}, 1e4);
  expect_twins(
      "every other",
      [&](const Tensors& in) {
        return Tensors{sqrtm(in[0].slice(0, 0, 4, 2).narrow(1, 1, 4).narrow(2, 1, 4))};
      },
      {m}, 1e4);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const Tensor half = on_cuda(covariances(4)).to(type).requires_grad_(true);
    const Tensor root = sqrtm(half);
    EXPECT_EQ(root.scalar_type(), type);
    const Tensor gradient = torch::autograd::grad({root.sum()}, {half})[0];
    EXPECT_EQ(gradient.scalar_type(), type);
    EXPECT_TRUE(all_finite(gradient));
  }
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{0, 4, 4}, {3, 0, 0}}) {
    const Tensor nothing = torch::zeros(shape, at::kCUDA);
    EXPECT_EQ(eigh(nothing).eigenvectors.sizes(), nothing.sizes());
    EXPECT_EQ(inv_sqrtm(nothing).sizes(), nothing.sizes());
  }
}

TEST(CudaMatrices, LargeBatches) {
  const Tensor x = random({70000, 3, 5}, 1), m = x.matmul(x.mT()) + torch::eye(3, at::kDouble);
  expect_twins("inv_sqrtm", [](const Tensors& in) { return Tensors{inv_sqrtm(in[0])}; }, {m}, 1e3,
               {at::kFloat});
}

// Up to 4 x 4, polar factors are one launch. Larger ones are made from svd.
TEST(CudaMatrices, RectanglesOfEveryShape) {
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {3, 3}, {4, 4}, {4, 2}, {2, 3}, {9, 9}, {12, 5}, {5, 40}, {33, 33}}) {
    // No value is near zero or, as far as possible, near another.
    const Tensor a = random({2, 3, m, n}, 31) / std::sqrt(double(std::max(m, n))) / 4 +
                     torch::diag_embed(torch::linspace(1, 3, m, at::kDouble))
                         .narrow(-1, 0, m < n ? m : n)
                         .matmul(torch::eye(m < n ? m : n, n, at::kDouble));
    const std::string shape = std::to_string(m) + " x " + std::to_string(n);
    expect_twins(
        "procrustes " + shape, [](const Tensors& in) { return Tensors{procrustes(in[0])}; }, {a},
        condition(n));
    expect_twins(
        "polar " + shape,
        [](const Tensors& in) {
          const auto [factor, positive] = polar(in[0]);
          return Tensors{factor, positive};
        },
        {a}, condition(n));
    expect_twins(
        "svd " + shape,
        [](const Tensors& in) {
          const auto [left, values, right] = keel::svd(in[0]);
          return Tensors{values, (left * (1 + values.square()).unsqueeze(-2)).matmul(right)};
        },
        {a}, condition(std::max(m, n)));
    if (m == n)
      expect_twins(
          "rotation " + shape,
          [](const Tensors& in) {
            const auto [rotation, margin] = special_procrustes(in[0]);
            return Tensors{rotation, margin.isinf().any().item<bool>() ? rotation : margin};
          },
          {a}, condition(n));
  }
}

TEST(CudaMatrices, RotationsOfMirrorsHalvesAndEmptyBatches) {
  Tensor a = random({1000, 3, 3}, 5);
  a.select(-1, 0).mul_(-1);
  const auto [rotation, margin] = special_procrustes(on_cuda(a));
  EXPECT_LE((torch::linalg_det(rotation) - 1).abs().max().item<double>(), 1e-12);
  EXPECT_LE((on_cpu(margin) - special_procrustes(a).margin).abs().max().item<double>(), 1e-12);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const Tensor half = on_cuda(a).to(type).requires_grad_(true);
    const Tensor r = special_procrustes(half).rotation;
    EXPECT_EQ(r.scalar_type(), type);
    EXPECT_TRUE(all_finite(torch::autograd::grad({r.sum()}, {half})[0]));
  }
  for (const auto& shape :
       std::vector<std::vector<std::int64_t>>{{0, 3, 3}, {2, 0, 0}, {2, 0, 3}}) {
    const Tensor nothing = torch::zeros(shape, at::kCUDA);
    EXPECT_EQ(procrustes(nothing).sizes(), nothing.sizes());
  }
  // The gradient at the identity is exact: (G - G^T) / 2.
  const Tensor identity = torch::eye(3, at::kCUDA).requires_grad_(true),
               g = random({3, 3}, 8, at::kFloat).to(at::kCUDA);
  const Tensor slope =
      torch::autograd::grad({(special_procrustes(identity).rotation * g).sum()}, {identity})[0];
  EXPECT_LE((slope - (g - g.mT()) / 2).abs().max().item<double>(), 1e-6);
}

}  // namespace
}  // namespace keel::test
