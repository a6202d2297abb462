#include "support.h"

#include <gtest/gtest.h>

#include "support/every.h"

namespace keel::test {
namespace {

const std::vector<GradientRule> kAllRules = testing::every<GradientRule>();

/// A loss of values and vectors that does not depend on the signs of eigenvectors.
Tensor smooth_loss(const Tensor& values, const Tensor& vectors) {
  const std::int64_t n = values.size(-1);
  const Tensor weight = random({n, n}, 21).to(values.scalar_type());
  return (values.pow(3) * weight[0]).sum() + (vectors.pow(2) * weight).sum() +
         (vectors.mT().matmul(weight).matmul(vectors)).pow(2).sum();
}

Loss loss_under(const GradientRule& rule) {
  return [rule](const Tensor& m) {
    const auto [values, vectors] = leading_first(m, rule);
    return smooth_loss(values, vectors);
  };
}

TEST(GradientRule, AnalyticAndMaskedEqualLinalgWhereItIsFinite) {
  const Loss linalg = [](const Tensor& m) {
    const auto [values, vectors] = torch::linalg_eigh(m);
    return smooth_loss(values.flip(-1), vectors.flip(-1));
  };
  for (const std::int64_t n : {1, 2, 5, 16, 33}) {
    const Tensor m = random_symmetric({3, n, n}, n);
    const Tensor expected = gradient(linalg, m);
    ASSERT_TRUE(all_finite(expected));
    EXPECT_LT(relative_error(gradient(loss_under(Analytic{}), m), expected), 1e-10) << n;
    EXPECT_LT(relative_error(gradient(loss_under(Masked{}), m), expected), 1e-10) << n;
  }
}

TEST(GradientRule, AnalyticAndMaskedAgreeWithDifferences) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Tensor m = with_spectrum({2, 1.2, 0.4, -0.3, -1.1}, seed);
    const Tensor expected = difference_gradient(loss_under(Masked{}), m);
    EXPECT_LT(relative_error(gradient(loss_under(Analytic{}), m), expected), 1e-8);
    EXPECT_LT(relative_error(gradient(loss_under(Masked{}), m), expected), 1e-8);
  }
}

TEST(GradientRule, SeriesRulesAreExactOnceConverged) {
  // Ratios of 0.1 leave 1e-19 after 19 terms.
  const Tensor m = geometric_spectrum(4, 0.1);
  const Tensor expected = gradient(loss_under(Analytic{}), m);
  EXPECT_LT(relative_error(gradient(loss_under(PowerIteration{}), m), expected), 1e-12);
  EXPECT_LT(relative_error(gradient(loss_under(Taylor{19}), m), expected), 1e-12);
  EXPECT_LT(relative_error(gradient(loss_under(Lorentzian{1e-12}), m), expected), 1e-12);
}

/// The paper's backward by autograd: `steps` power iterations from the true eigenvector, then deflation, for one
/// eigenvector after another, with gradients through the whole chain.
Eigh deflation_chain(const Tensor& matrix, std::int64_t steps) {
  const Tensor start = leading_first(matrix.detach()).eigenvectors;
  Tensor deflated = (matrix + matrix.t()) / 2;
  std::vector<Tensor> values, vectors;
  for (std::int64_t i = 0; i < matrix.size(-1); ++i) {
    Tensor v = start.select(-1, i);
    for (std::int64_t k = 0; k < steps; ++k) {
      v = deflated.mv(v);
      v = v / v.norm();
    }
    values.push_back(v.dot(deflated.mv(v)));
    vectors.push_back(v);
    deflated = deflated - deflated.mv(v).outer(v);
  }
  return {torch::stack(values), torch::stack(vectors, -1)};
}

TEST(GradientRule, PowerIterationEqualsTheUnrolledDeflationChain) {
  for (const std::int64_t n : {4, 8, 16, 32, 64}) {
    // A covariance with four samples per dimension: close neighbours, but none within rounding.
    const Tensor x = random({4 * n, n}, n);
    const Tensor m = x.t().matmul(x) / double(4 * n);
    const Tensor weight = random({n, n}, 3);
    for (const int terms : {1, 2, 19}) {
      const auto loss = [&](const Eigh& eigh) {
        return (eigh.eigenvectors * weight).sum() + (eigh.eigenvalues * weight[0]).sum();
      };
      const Tensor expected =
          gradient([&](const Tensor& a) { return loss(deflation_chain(a, terms)); }, m);
      const Tensor ours = gradient(
          [&](const Tensor& a) { return loss(leading_first(a, PowerIteration{terms})); }, m);
      EXPECT_LT(relative_error(ours, expected), 1e-12) << "n " << n << ", terms " << terms;
    }
  }
}

TEST(GradientRule, MaskedLeavesOutWhatMatrixFunctionsNeedInsideAnEigenspace) {
  const Tensor m = with_spectrum({2, 2, 1, 1, 0.5}), weight = random_symmetric({5, 5}, 9);
  const Tensor ours = gradient(
      [&](const Tensor& a) {
        const auto [l, v] = leading_first(a);
        return (v.matmul(torch::diag(l.log())).matmul(v.t()) * weight).sum();
      },
      m);
  const Loss exact = [&](const Tensor& a) { return (logm(a) * weight).sum(); };
  const Tensor v = leading_first(m).eigenvectors;
  const Tensor difference = v.t().matmul(ours - difference_gradient(exact, m)).matmul(v);
  // For log, the slope 1/l times the loss's own entry. Everything else agrees.
  Tensor expected = torch::zeros({5, 5}, at::kDouble);
  const Tensor c = v.t().matmul(weight).matmul(v);
  expected[0][1] = expected[1][0] = -c[0][1] / 2;
  expected[2][3] = expected[3][2] = -c[2][3];
  EXPECT_LT(relative_error(difference, expected), 1e-7);
  EXPECT_LT(relative_error(gradient(exact, m), difference_gradient(exact, m)), 1e-8);
}

TEST(GradientRule, MaskedIsExactAtRepeatsForProjectorsOnWholeEigenspaces) {
  const Tensor m = with_spectrum({2, 2, 1, 1, 0.5}), weight = random_symmetric({5, 5}, 9);
  const auto loss = [&](const Tensor& a) {
    const Tensor leading = leading_first(a).eigenvectors.narrow(-1, 0, 2);
    return (leading.matmul(leading.t()) * weight).sum();
  };
  EXPECT_LT(relative_error(gradient(loss, m), difference_gradient(loss, m)), 1e-8);
  for (const GradientRule& rule : {GradientRule(Analytic{}), GradientRule(PowerIteration{}),
                                   GradientRule(Taylor{}), GradientRule(Lorentzian{})}) {
    const Tensor g =
        gradient([&](const Tensor& a) { return leading_first(a, rule).eigenvectors.sum(); },
                 torch::diag(torch::tensor({4.0, 1.0, 1.0}, at::kDouble)));
    EXPECT_EQ(all_finite(g), !std::holds_alternative<Analytic>(rule)) << to_string(rule);
  }
}

TEST(GradientRule, LossesOnEigenvaluesAloneAreExactAtRepeatsUnderEveryRule) {
  const Tensor m = with_spectrum({2, 2, 1, 1, 0.5});
  const auto loss = [](const GradientRule& rule) {
    return [rule](const Tensor& a) { return leading_first(a, rule).eigenvalues.pow(3).sum(); };
  };
  const Tensor exact = 3 * m.matmul(m);
  for (const GradientRule& rule : kAllRules)
    EXPECT_LT(relative_error(gradient(loss(rule), m), exact), 1e-13) << to_string(rule);
}

TEST(GradientRule, GradientsAreSymmetricToTheBit) {
  const Tensor m = random_symmetric({3, 7, 7}, 2).to(at::kFloat);
  for (const GradientRule& rule : kAllRules) {
    const Tensor g = gradient(
        [&](const Tensor& a) { return leading_first(a, rule).eigenvectors.pow(3).sum(); }, m);
    EXPECT_TRUE(torch::equal(g, g.mT())) << to_string(rule);
  }
}

TEST(GradientRule, OutputsALossDoesNotUseCostNothingAndCountAsZero) {
  const Tensor m = random_symmetric({2, 5, 5}, 4).requires_grad_(true);
  const auto [values, vectors] = leading_first(m);
  const auto grad_of = [&](const Tensor& loss) {
    return torch::autograd::grad({loss}, {m}, {}, /*retain_graph=*/true)[0];
  };
  const Tensor weight = random({5, 5}, 1);
  const Tensor by_values = grad_of(values.pow(2).sum()),
               by_vectors = grad_of((vectors * weight).sum());
  const Tensor both = grad_of(values.pow(2).sum() + (vectors * weight).sum());
  EXPECT_LT(relative_error(by_values + by_vectors, both), 1e-13);
  // A second backward through the same graph gives the same bits.
  EXPECT_TRUE(torch::equal(both, grad_of(values.pow(2).sum() + (vectors * weight).sum())));
}

TEST(GradientRule, GradientsInAnyLayoutAreRead) {
  const Tensor m = random_symmetric({2, 3, 4, 4}, 4).requires_grad_(true);
  const auto [values, vectors] = leading_first(m);
  const Tensor weight = random({3, 2, 4, 4}, 6);
  const auto grad_of = [&](const Tensor& given) {
    return torch::autograd::grad({vectors}, {m}, {given}, /*retain_graph=*/true)[0];
  };
  const Tensor transposed = weight.transpose(0, 1).mT();
  EXPECT_TRUE(torch::equal(grad_of(transposed), grad_of(transposed.contiguous())));
  const Tensor expanded = weight[0][0][0].expand({2, 3, 4, 4});
  EXPECT_TRUE(torch::equal(grad_of(expanded), grad_of(expanded.contiguous())));
}

TEST(GradientRule, TheFormulaForGraphsEqualsTheKernel) {
  // With create_graph the gradient is made of tensor operations. The numbers must be the same.
  for (const GradientRule& rule : kAllRules) {
    for (const Tensor& m :
         {random_symmetric({3, 6, 6}, 8), with_spectrum({3, -3.0, 1, 0.5, 0, -2}),
          with_spectrum({2, 1, 1e-3, 0, 0, 0}), with_spectrum({2, 1.99, 1.98, 1, 0.99, 0.98})}) {
      const Tensor x = m.clone().requires_grad_(true);
      const Tensor loss = loss_under(rule)(x);
      const Tensor kernel = torch::autograd::grad({loss}, {x}, {}, true)[0];
      const Tensor formula = torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true)[0];
      if (!all_finite(kernel)) continue;
      EXPECT_TRUE(formula.requires_grad());
      EXPECT_LT(relative_error(formula, kernel), 1e-9) << to_string(rule) << "\n" << m;
    }
  }
}

TEST(GradientRule, LorentziansWhoseSquareUnderflowsHaveGraphsWithoutNaN) {
  for (const auto& [type, width] :
       {std::pair(at::kFloat, 1e-30), std::pair(at::kFloat, 1e-60), std::pair(at::kDouble, 1e-200)})
    for (const Tensor& m : {torch::eye(4, at::kDouble), torch::diag(torch::tensor({2.0, 1.0, 1.0})),
                            with_spectrum({2, 1, 0.5, 0.25})}) {
      const Tensor x = m.to(type).requires_grad_(true);
      const Tensor loss = loss_under(Lorentzian{width})(x);
      const Tensor kernel = torch::autograd::grad({loss}, {x}, {}, true)[0];
      const Tensor formula = torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true)[0];
      EXPECT_LT(relative_error(formula.to(at::kDouble), kernel.to(at::kDouble)), 1e-5) << width;
      EXPECT_TRUE(all_finite(torch::autograd::grad({formula.square().sum()}, {x})[0])) << width;
    }
}

/// Compares the gradient of <dL/dM, direction> by double backward with differences of dL/dM.
void expect_second_derivative(const GradientRule& rule, const Tensor& m, double tolerance) {
  const Tensor direction = random_symmetric(m.sizes(), 31);
  const auto along = [&](const Tensor& a, bool create_graph) {
    const Tensor x = create_graph ? a : a.detach().clone().requires_grad_(true);
    const torch::AutoGradMode enabled(true);
    const Tensor g = torch::autograd::grad({loss_under(rule)(x)}, {x}, {}, true, create_graph)[0];
    return (g * direction).sum();
  };
  const Tensor ours = gradient([&](const Tensor& a) { return along(a, true); }, m);
  const Tensor expected =
      difference_gradient([&](const Tensor& a) { return along(a, false); }, m, 1e-4);
  ASSERT_TRUE(all_finite(ours));
  EXPECT_LT(relative_error(ours, expected), tolerance) << to_string(rule);
}

TEST(GradientRule, DoubleBackwardAgreesWithDifferencesOfTheGradient) {
  const Tensor distinct = with_spectrum({2, 1.2, 0.4, -0.5});
  expect_second_derivative(Analytic{}, distinct, 1e-7);
  expect_second_derivative(Masked{}, distinct, 1e-7);
  const Tensor converged = with_spectrum({1, 0.2, -0.04, 0.008});
  expect_second_derivative(PowerIteration{}, converged, 1e-6);
  expect_second_derivative(Taylor{19}, converged, 1e-6);
  expect_second_derivative(Lorentzian{1e-8}, distinct, 1e-7);
}

TEST(GradientRule, ThirdDerivativesComeFromTheSameFormula) {
  // trace(M^4) = sum l^4. Its third derivative along directions has a closed form.
  const Tensor m = with_spectrum({2, 1, 0.5}), d = random_symmetric({3, 3}, 3);
  const Tensor x = m.clone().requires_grad_(true);
  const auto step = [&](const Tensor& y, bool graph) {
    return (torch::autograd::grad({y}, {x}, {}, true, graph)[0] * d).sum();
  };
  const Tensor third =
      step(step(step(leading_first(x).eigenvalues.pow(4).sum(), true), true), false);
  const double expected = 24 * (m.matmul(d).matmul(d).matmul(d)).trace().item<double>();
  EXPECT_NEAR(third.item<double>(), expected, 1e-9 * std::abs(expected));
}

TEST(GradientRule, GradientsScaleInverselyWithTheMatrix) {
  const Tensor m = with_spectrum({2, 1.9, 1, 1, 0.1}).to(at::kFloat), weight = random({5, 5}, 2);
  for (const GradientRule& rule : kAllRules) {
    if (std::holds_alternative<Analytic>(rule)) continue;
    const Loss loss = [&](const Tensor& a) {
      return (leading_first(a, rule).eigenvectors * weight).sum();
    };
    const Tensor at_one = gradient(loss, m);
    for (const float scale : {0x1p-66f, 0x1p63f})
      EXPECT_LT(relative_error(gradient(loss, m * scale) * scale, at_one), 1e-6) << to_string(rule);
  }
}

}  // namespace
}  // namespace keel::test
