#include "keel/layer_matrix.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/errors.h"
#include "support/every.h"
#include "support/finite_differences.h"
#include "support/layer_matrix_contract.h"
#include "support/spectrum_zoo.h"

namespace keel::testing {
namespace {

template <typename T>
Mapped<T> mapped(const LayerMap& map, const Batch<T>& covariance,
                 const Executor& executor = serial()) {
  Mapped<T> m(covariance.batch, covariance.n);
  cpu::layer_matrix<T>(map, covariance.view(), m.result.view(), m.state(), executor);
  return m;
}

template <typename T>
Batch<T> gradient(const LayerMap& map, const SpectralRule& rule, const Batch<T>& covariance,
                  Mapped<T> m, const Batch<T>& dL_dresult, const Executor& executor = serial()) {
  Batch<T> out(covariance.batch, covariance.n, T(-77));
  cpu::layer_matrix_backward<T>(map, rule, covariance.view(), m.state(), dL_dresult.view(),
                                out.view(), executor);
  return out;
}

const std::vector<SpectralRule> kLayerRules = every<SpectralRule>();

using EveryLayerMatrixOnCpu = OnFloats<Cpu>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCpu, LayerMatrixContract, EveryLayerMatrixOnCpu);

TEST(LayerMatrix, CpuAgreesWithTheReferenceOnLargeCovariances) {
  for (const std::int64_t n : {31, 64, 65})
    for (const LayerMap& map :
         {LayerMap(Zca{}), LayerMap(PcaDenoising{}), LayerMap(Zca{1e-4, FullRank{}})}) {
      const Batch<double> covariance = wishart(n, 8 * n, 5);
      const Batch<double> weight = random_matrices(1, n, 6);
      const Mapped<double> truth = mapped_by_reference(map, covariance);
      const Mapped<double> ours = mapped(map, covariance);
      const Mapped<float> single = mapped(map, as<float>(covariance));
      // A full-rank ZCA is a function of the matrix. Its error depends on the spread of the values, not on their
      // gaps.
      const bool of_gaps = !std::holds_alternative<Zca>(map) || truth.rank[0] < n;
      const double bad =
                       of_gaps ? amplification(truth) : truth.values.front() / truth.values.back(),
                   size = largest_entry(truth.result);
      EXPECT_EQ(single.rank, truth.rank);
      EXPECT_LT(largest_difference(ours.result, truth.result), rounding<double>(n, size) * bad);
      EXPECT_LT(largest_difference(single.result, truth.result), rounding<float>(n, size) * bad);
      const Batch<double> d = gradient_by_reference(map, Exact{}, covariance, truth, weight);
      const double slope = largest_entry(d);
      EXPECT_LT(largest_difference(gradient(map, Exact{}, covariance, ours, weight), d),
                rounding<double>(n, slope) * bad);
      EXPECT_LT(largest_difference(
                    gradient(map, Exact{}, as<float>(covariance), single, as<float>(weight)), d),
                rounding<float>(n, slope) * bad);
    }
}

TEST(LayerMatrix, EveryRulesGradientAgreesWithTheReference) {
  for (const std::int64_t n : {1, 2, 6})
    for (const RankPolicy& policy : kLayerPolicies)
      for (const LayerMap& map : maps(policy))
        for (const SpectralRule& rule : kLayerRules) {
          const Batch<double> covariance = spread_covariance(n), weight = random_matrices(1, n, 4);
          const Mapped<double> m = mapped_by_reference(map, covariance);
          const Batch<double> truth = gradient_by_reference(map, rule, covariance, m, weight);
          const Batch<double> ours = gradient(map, rule, covariance, m, weight);
          // The state is bitwise the same, so only the formula's own rounding is left.
          const double size = largest_entry(truth) + largest_entry(m.result);
          EXPECT_LT(largest_difference(ours, truth), kSameFormula * size)
              << to_string(map) << ' ' << to_string(rule);
          EXPECT_TRUE(exactly_symmetric(ours)) << to_string(map);
        }
}

TEST(LayerMatrix, ReferenceGradientsAgreeWithDifferences) {
  const std::int64_t n = 5;
  const Batch<double> covariance = spread_covariance(n), weight = random_matrices(1, n, 4),
                      direction = random_symmetric(1, n, 5);
  // With this many terms the series have converged, since the ratios are well below one.
  const SpectralRule rules[] = {Exact{2000}, Analytic{}, PowerIteration{2000}, Taylor{2000},
                                Masked{}};
  for (const RankPolicy& policy : kLayerPolicies)
    for (const LayerMap& map : maps(policy))
      for (const SpectralRule& rule : rules) {
        const auto loss = [&](const Batch<double>& c) {
          return inner(mapped_by_reference(map, c).result, weight);
        };
        const Batch<double> ours = gradient_by_reference(
            map, rule, covariance, mapped_by_reference(map, covariance), weight);
        const double expected = directional_derivative(loss, covariance, direction, 1e-4);
        EXPECT_NEAR(inner(ours, direction), expected,
                    by_differences(std::abs(expected) + largest_entry(ours)))
            << to_string(map) << ' ' << to_string(rule);
      }
}

// A covariance of fewer samples than channels has values on both sides of eps, by rounding. Here they are far below it.
TEST(LayerMatrix, BelowEpsTheGradientIsTheReferencesUnderEveryRule) {
  const Batch<double> weight = random_matrices(1, 5, 4);
  for (const Batch<double>& covariance : {beyond_positive(5), with_dead_channels(5)})
    for (const RankPolicy& policy : kLayerPolicies)
      for (const LayerMap& map : maps(policy)) {
        const Mapped<double> m = mapped_by_reference(map, covariance);
        EXPECT_EQ(mapped(map, covariance).rank, m.rank);
        EXPECT_LE(largest_difference(mapped(map, covariance).result, m.result),
                  kSameFormula * largest_entry(m.result));
        for (const SpectralRule& rule : kLayerRules) {
          SCOPED_TRACE(to_string(map) + ", " + to_string(rule));
          const Batch<double> truth = gradient_by_reference(map, rule, covariance, m, weight);
          const Batch<double> ours = gradient(map, rule, covariance, m, weight);
          const double size = largest_entry(truth) + largest_entry(m.result);
          const bool ties = values_meet(m) && std::holds_alternative<Analytic>(rule);
          EXPECT_EQ(all_finite(truth), !ties);
          EXPECT_EQ(all_finite(ours), !ties);
          if (!ties) {
            EXPECT_LE(largest_difference(ours, truth), kSameFormula * size);
          }
        }
      }
}

TEST(LayerMatrix, TheTextbookGradientIsThatOfTheFormulaBelowEpsToo) {
  const std::int64_t n = 5;
  const Batch<double> covariance = beyond_positive(n), weight = random_matrices(1, n, 4),
                      direction = random_symmetric(1, n, 5);
  for (const RankPolicy& policy : {RankPolicy(FullRank{}), RankPolicy(LeadingCount{4})})
    for (const LayerMap& map : maps(policy)) {
      const auto loss = [&](const Batch<double>& c) {
        return inner(mapped_by_reference(map, c).result, weight);
      };
      const Batch<double> ours =
          gradient(map, Analytic{}, covariance, mapped(map, covariance), weight);
      EXPECT_NEAR(inner(ours, direction), directional_derivative(loss, covariance, direction, 1e-4),
                  by_differences(largest_entry(ours)))
          << to_string(map);
    }
}

TEST(LayerMatrix, TwoDroppedDirectionsContributeNothingUnderAnyRule) {
  const std::int64_t n = 8;
  const Batch<double> weight = random_matrices(1, n, 4);
  for (const Batch<double>& covariance :
       {with_dead_channels(n), wishart(n, 5, 3), diagonal({2, 1, 0, 0, 0, 0, 0, 0})})
    for (const LayerMap& map :
         {LayerMap(Zca{1e-4, LeadingCount{2}}), LayerMap(PcaWhitening{1e-4, LeadingCount{2}})})
      for (const SpectralRule& rule : kLayerRules) {
        SCOPED_TRACE(to_string(map) + ", " + to_string(rule));
        const Mapped<double> m = mapped(map, covariance);
        const Batch<double> d = gradient(map, rule, covariance, m, weight);
        ASSERT_TRUE(all_finite(d));
        for (std::int64_t i = 2; i < n; ++i)
          for (std::int64_t j = 2; j < n; ++j) {
            double along = 0;
            for (std::int64_t r = 0; r < n; ++r)
              for (std::int64_t c = 0; c < n; ++c)
                along += m.vectors(0, r, i) * d(0, r, c) * m.vectors(0, c, j);
            EXPECT_NEAR(along, 0, rounding<double>(n, largest_entry(d)));
          }
      }
}

TEST(LayerMatrix, StateHoldsTheValuesThatEighFound) {
  for (const LayerMap& map : maps(FullRank{})) {
    if (std::holds_alternative<PcaDenoising>(map)) continue;
    const Mapped<double> m = mapped(map, beyond_positive(5)),
                         truth = mapped_by_reference(map, beyond_positive(5));
    EXPECT_NEAR(m.values[4], -0.6 + 1e-4, rounding<double>(5, 2));
    EXPECT_NEAR(truth.values[4], -0.6 + 1e-4, rounding<double>(5, 2));
    EXPECT_NEAR(largest_entry(m.result), largest_entry(truth.result), rounding<double>(5, 100));
    EXPECT_LT(largest_entry(m.result), 101);
  }
}

TEST(LayerMatrix, ExactGradientsHoldAtRepeatedEigenvalues) {
  const std::int64_t n = 4;
  const Batch<double> weight = random_matrices(1, n, 4), direction = random_symmetric(1, n, 5);
  for (const Batch<double>& covariance :
       {with_spectrum({2, 2, 1, 1}, 3), diagonal({1, 1, 1, 1}), with_spectrum({3, 1, 1, 1}, 3)}) {
    const LayerMap map = Zca{1e-4, FullRank{}};
    const auto loss = [&](const Batch<double>& c) {
      return inner(mapped_by_reference(map, c).result, weight);
    };
    const Batch<double> ours = gradient(map, Exact{}, covariance, mapped(map, covariance), weight);
    const double expected = directional_derivative(loss, covariance, direction, 1e-4);
    EXPECT_NEAR(inner(ours, direction), expected, by_differences(largest_entry(ours)));
  }
}

TEST(LayerMatrix, GradientsDoNotDependOnSignsOrTheBasisInsideAnEigenspace) {
  const std::int64_t n = 5;
  const Batch<double> weight = random_matrices(1, n, 4);
  const Batch<double> covariance = diagonal({2, 2, 2, 0.5, 0.5});
  for (const LayerMap& map :
       {LayerMap(Zca{1e-4, FullRank{}}), LayerMap(Zca{}), LayerMap(Zca{1e-4, LeadingCount{3}})}) {
    Mapped<double> m = mapped(map, covariance);
    const Batch<double> before = gradient(map, Exact{}, covariance, m, weight);
    for (std::int64_t row = 0; row < n; ++row) {
      const double c = std::cos(0.7), s = std::sin(0.7);
      const double a = m.vectors(0, row, 0), b = m.vectors(0, row, 2);
      m.vectors(0, row, 0) = c * a - s * b;
      m.vectors(0, row, 2) = s * a + c * b;
      m.vectors(0, row, 1) *= -1;
      m.vectors(0, row, 3) *= -1;
    }
    const Batch<double> after = gradient(map, Exact{}, covariance, m, weight);
    EXPECT_LT(largest_difference(after, before), rounding<double>(n, largest_entry(before)))
        << to_string(map);
  }
}

TEST(LayerMatrix, ZcaWhitens) {
  const std::int64_t n = 8;
  const Batch<double> covariance = spread_covariance(n);
  const Batch<double> s = mapped<double>(Zca{0.0, FullRank{}}, covariance).result;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double entry = 0;
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t l = 0; l < n; ++l) entry += s(0, i, k) * covariance(0, k, l) * s(0, j, l);
      EXPECT_NEAR(entry, i == j, 1e-13);
    }
}

TEST(LayerMatrix, OneDirectionWithNearlyAllTheEnergyKeepsThatOne) {
  const Batch<double> covariance =
      with_spectrum(spectrum(6, [](double i) { return i == 0 ? 1.0 : 1e-6; }), 3);
  EXPECT_EQ(mapped<double>(Zca{1e-6, Algorithm1{.eps = 1e-6}}, covariance).rank[0], 1);
  EXPECT_EQ(mapped<float>(Zca{1e-6, Algorithm1{.eps = 1e-6}}, as<float>(covariance)).rank[0], 1);
  EXPECT_EQ(mapped<double>(Zca{1e-6, LeadingEnergy{0.99}}, covariance).rank[0], 1);
}

TEST(LayerMatrix, WithoutEpsADroppedDirectionOfNoVarianceIsStillARowOfZeros) {
  for (const std::int64_t n : {2, 5, 40}) {
    Batch<double> covariance(1, n);
    covariance(0, 0, 0) = 4;
    const Batch<double> weight = random_matrices(1, n, 4);
    for (const LayerMap& map :
         {LayerMap(PcaWhitening{0, LeadingCount{1}}), LayerMap(Zca{0, LeadingCount{1}})}) {
      SCOPED_TRACE(to_string(map));
      const Mapped<double> m = mapped(map, covariance),
                           exact = mapped_by_reference(map, covariance);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          EXPECT_EQ(m.result(0, i, j), i == 0 && j == 0 ? 0.5 : 0.0) << i << ' ' << j;
      const Batch<double> got = gradient(map, Exact{}, covariance, m, weight);
      EXPECT_TRUE(all_finite(got));
      EXPECT_LE(
          largest_difference(got, gradient_by_reference(map, Exact{}, covariance, exact, weight)),
          rounding<double>(n, largest_entry(got)));
    }
  }
}

TEST(LayerMatrix, WithoutEpsDenoisingMakesAConstantChannelZero) {
  for (const std::int64_t n : {2, 5, 40}) {
    Batch<double> covariance = wishart(n, 4 * n, 5);
    for (std::int64_t i = 0; i < n; ++i) covariance(0, i, 1) = covariance(0, 1, i) = 0;
    const Batch<double> weight = random_matrices(1, n, 4);
    for (const LayerMap& map :
         {LayerMap(PcaDenoising{0, FullRank{}}), LayerMap(PcaDenoising{0, LeadingCount{1}})}) {
      SCOPED_TRACE(to_string(map));
      const Mapped<double> m = mapped(map, covariance),
                           exact = mapped_by_reference(map, covariance);
      EXPECT_TRUE(all_finite(m.result));
      EXPECT_LE(largest_difference(m.result, exact.result),
                rounding<double>(n, largest_entry(exact.result)));
      const Batch<double> got = gradient(map, Exact{}, covariance, m, weight);
      for (std::int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(m.result(0, i, 1), 0) << i;
        EXPECT_EQ(m.result(0, 1, i), 0) << i;
        EXPECT_EQ(got(0, i, 1), 0) << i;
        EXPECT_EQ(got(0, 1, i), 0) << i;
      }
      EXPECT_LE(
          largest_difference(got, gradient_by_reference(map, Exact{}, covariance, exact, weight)),
          rounding<double>(n, largest_entry(got)));
    }
  }
}

TEST(LayerMatrix, ConstantActivationsGiveTheScaledIdentity) {
  const Mapped<double> m = mapped<double>(Zca{1e-4, FullRank{}}, Batch<double>(1, 3));
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 3; ++j) EXPECT_NEAR(m.result(0, i, j), i == j ? 100 : 0, 1e-11);
  EXPECT_EQ(mapped<double>(Zca{}, Batch<double>(1, 3)).rank[0], 1);
}

TEST(LayerMatrix, ReferenceGivesNaNForNaN) {
  Batch<double> bad = wishart(4, 16, 3);
  bad(0, 2, 1) = std::numeric_limits<double>::quiet_NaN();
  for (const RankPolicy& policy : kLayerPolicies)
    for (const LayerMap& map : maps(policy)) {
      const Mapped<double> m = mapped_by_reference(map, bad);
      for (const double x : m.result.data) EXPECT_TRUE(std::isnan(x)) << to_string(map);
    }
}

TEST(LayerMatrix, TheLowerTriangleOnAnyNumberOfThreadsGivesTheSameBits) {
  const auto others = [](auto type) {
    using By = LayerMatrixBy<Cpu, decltype(type)>;
    return std::vector<By>{By{.gap = 3}, By{.run = [](auto& call) { call(threads(3)); }}};
  };
  expect_the_same_bits(others(0.0f));
  expect_the_same_bits(others(0.0));
}

TEST(LayerMatrix, ErrorsNameWhatWasExpectedAndWhatCame) {
  Batch<float> covariance(2, 3), result(2, 4);
  Mapped<float> m(2, 3);
  EXPECT_EQ(error_of([&] {
              cpu::layer_matrix<float>(Zca{}, covariance.view(), result.view(), m.state());
            }),
            "keel::layer_matrix: expected result of shape (2, 3, 3), got (2, 4, 4)");
}

}  // namespace
}  // namespace keel::testing
