#include "lab/report/spectrum_study.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "keel/error.h"

namespace keel::lab::report {
namespace {

using torch::Tensor;

Tensor diagonal(std::vector<double> values) {
  return torch::diag(torch::tensor(values, torch::kDouble));
}

const RuleError& rule(const SpectrumStudy& study, const std::string& name) {
  for (const RuleError& row : study.rules)
    if (row.rule.rfind(name, 0) == 0) return row;
  throw std::runtime_error("no rule " + name);
}

TEST(SpectrumStudy, TermsAreThoseOfThePapersTable) {
  const std::vector<std::pair<double, double>> table = {
      {0.1, 2}, {0.3, 3}, {0.5, 5}, {0.8, 14}, {0.85, 19}, {0.9, 29}, {0.95, 59}, {0.99, 299}};
  for (const auto& [ratio, terms] : table) EXPECT_EQ(table1_terms(ratio), terms) << ratio;
  EXPECT_TRUE(std::isinf(table1_terms(1)));
  EXPECT_EQ(table1_terms(0), 1);
}

TEST(SpectrumStudy, GapsAndRatios) {
  const auto result = study(diagonal({1, 4, 2}));
  EXPECT_EQ(result.values, (std::vector<double>{4, 2, 1}));
  ASSERT_EQ(result.neighbours.size(), 2u);
  EXPECT_EQ(result.neighbours[0].gap(), 2);
  EXPECT_EQ(result.neighbours[1].ratio(), 0.5);
  EXPECT_EQ(result.rank, 3);
}

TEST(SpectrumStudy, WellApartEveryRuleThatDividesIsExact) {
  const auto result = study(diagonal({8, 2, 0.5, 0.1}));
  EXPECT_LT(rule(result, "analytic").error, 1e-12);
  EXPECT_LT(rule(result, "masked").error, 1e-12);
  EXPECT_NEAR(rule(result, "analytic").cosine, 1, 1e-12);
  EXPECT_LT(rule(result, "power_iteration").error, 1e-6);  // 0.25^19
}

TEST(SpectrumStudy, AtRepeatsTheTextbookRuleIsNotFiniteAndTheSeriesAreBiased) {
  const auto result = study(diagonal({2, 1, 1, 0.5}));
  EXPECT_FALSE(rule(result, "analytic").finite);
  EXPECT_TRUE(rule(result, "power_iteration").finite);
  EXPECT_GT(rule(result, "power_iteration").error, 0.1);
  EXPECT_EQ(result.neighbours[1].gap(), 0);
}

/// What a rule is off by at eigenvalues 1 and q if it scales the kernel of the pair by 1 - `left_out`. The exact kernels are
/// `pair` and, on the diagonal, -1/2 and `second`.
double expected_error(double left_out, double pair, double second) {
  const StudyOptions options;
  auto generator = at::detail::createCPUGenerator(options.seed);
  const Tensor w = torch::randn({options.draws, 2, 2}, generator, torch::kDouble);
  const auto entry = [&](int i, int j) { return w.select(1, i).select(1, j); };
  const auto size = [](const Tensor& x) { return x.square().sum().item<double>(); };
  const double pairs = 2 * size((entry(0, 1) + entry(1, 0)) / 2 * pair);
  return left_out *
         std::sqrt(pairs / (pairs + size(entry(0, 0) * -0.5) + size(entry(1, 1) * second)));
}

// With 1/sqrt the exact kernel of the pair is -1 / (sqrt(q) (1 + sqrt(q))). The Taylor rule uses S_T(q) instead of
// 1 / (1 - q), which scales the kernel by 1 - q^T. Both are exact for diagonal entries.
TEST(SpectrumStudy, TheErrorOfTheSeriesIsTheOneWorkedOutByHand) {
  const double q = 0.9;
  StudyOptions options;
  options.terms = 5;
  EXPECT_NEAR(rule(study(diagonal({1, q}), options), "taylor").error,
              expected_error(std::pow(q, 5), -1 / (std::sqrt(q) * (1 + std::sqrt(q))),
                             -0.5 * std::pow(q, -1.5)),
              1e-12);
}

TEST(SpectrumStudy, MoreTermsComeCloser) {
  const auto matrix = diagonal({1, 0.8, 0.3});
  StudyOptions few, many;
  few.terms = 3;
  many.terms = 100;
  EXPECT_GT(rule(study(matrix, few), "power_iteration").error,
            100 * rule(study(matrix, many), "power_iteration").error);
}

TEST(SpectrumStudy, TheRulesAndTheirArithmeticCanBeChosen) {
  StudyOptions options;
  options.rules = {Exact{}};
  const Tensor matrix = diagonal({1, 0.3, 0.02});
  EXPECT_EQ(study(matrix, options).rules.at(0).error, 0);
  options.type = torch::kFloat;
  const double rounding = study(matrix, options).rules.at(0).error;
  EXPECT_GT(rounding, 1e-9);
  EXPECT_LT(rounding, 1e-5);
}

// Across a rank cut 1 / (l_i - l_j) is exact, and a series leaves out (l_j / l_i)^terms.
TEST(SpectrumStudy, TheTruthAcrossARankCutIsTheWholeSeries) {
  StudyOptions options;
  options.policy = LeadingCount{1};
  options.rules = {Analytic{}, Exact{.terms = 2}};
  const auto result = study(diagonal({1, 0.5}), options);
  EXPECT_LT(rule(result, "analytic").error, 1e-14);
  EXPECT_NEAR(rule(result, "exact").error, expected_error(0.25, 2, 0), 1e-12);
}

// M^(-3/2) overflows from 1e-206 on and is zero from 1e216 on, and its square long before that.
TEST(SpectrumStudy, NumbersOfAnySizeGiveTheSameErrors) {
  const Tensor plain =
      torch::tensor({{3., 1., 0.5}, {1., 2., 0.25}, {0.5, 0.25, 1.}}, torch::kDouble);
  const auto expected = study(plain);
  for (const int exponent : {1021, 1000, 400, -400, -1000, -1060}) {
    const auto result =
        study(plain * std::ldexp(1., exponent / 2) * std::ldexp(1., exponent - exponent / 2));
    EXPECT_EQ(result.values[0], std::ldexp(expected.values[0], exponent));
    for (std::size_t i = 0; i < expected.rules.size(); ++i) {
      EXPECT_TRUE(result.rules[i].finite) << exponent << expected.rules[i].rule;
      EXPECT_EQ(result.rules[i].error, expected.rules[i].error) << exponent;
      EXPECT_EQ(result.rules[i].cosine, expected.rules[i].cosine) << exponent;
    }
  }
}

TEST(SpectrumStudy, WrongMatricesAreNamed) {
  EXPECT_THROW(study(torch::ones({2, 3}, torch::kDouble)), Error);
  EXPECT_THROW(study(torch::tensor({{1., 2.}, {3., 4.}}, torch::kDouble)), Error);
  EXPECT_THROW(study(diagonal({1, std::nan("")})), Error);
  EXPECT_THROW(study(diagonal({1, -1})), Error);  // no square root there
}

}  // namespace
}  // namespace keel::lab::report
