#include "formulas/pair_weight.h"

#include <gtest/gtest.h>

#include "support/every.h"
#include "support/plain_pair_weight.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

TEST(GeometricSum, IsThePlainSum) {
  for (int terms = 0; terms <= 70; ++terms)
    for (const double q : {-1.0, -0.999, -0.5, 0.0, 0.1, 0.5, 0.9, 0.999, 1.0}) {
      const double truth = double(plain_geometric_sum(terms, q));
      const double magnitude = double(plain_geometric_sum(terms, std::abs(q)));
      EXPECT_NEAR(geometric_sum(terms, q), truth, rounding<double>(terms, magnitude))
          << terms << " terms, q = " << q;
      EXPECT_NEAR(geometric_sum(terms, float(q)), truth, rounding<float>(terms, magnitude));
    }
  EXPECT_EQ(geometric_sum(1'000'003, 1.0), 1'000'003.0);
  EXPECT_EQ(geometric_sum(std::numeric_limits<int>::max(), 0.5), 2.0);
}

TEST(GeometricSum, NothingIsLostNearOne) {
  // q = 1 - x: S_T = T - T(T-1)/2 x + ... The textbook quotient has no correct digit here.
  const double x = 0x1p-50;
  EXPECT_NEAR(geometric_sum(100, 1 - x), 100 - 4950 * x, rounding<double>(4, 100));
}

TEST(GeometricSum, Table1OfThePaper) {
  // The smallest number of terms that brings the series within 5 % of its limit. (The paper's header says 0.01, but
  // its numbers are those of 0.05.)
  const struct {
    double ratio;
    int terms;
  } table[] = {{0.1, 2},   {0.2, 2},    {0.3, 3},     {0.4, 4},     {0.5, 5},
               {0.6, 6},   {0.7, 9},    {0.8, 14},    {0.85, 19},   {0.9, 29},
               {0.95, 59}, {0.99, 299}, {0.995, 598}, {0.999, 2995}};
  for (const auto& [ratio, terms] : table) {
    EXPECT_EQ(int(std::ceil(std::log(0.05) / std::log(ratio))), terms) << ratio;
    EXPECT_GE(geometric_sum(terms, ratio) * (1 - ratio), 0.95) << ratio;
    EXPECT_LT(geometric_sum(terms - 1, ratio) * (1 - ratio), 0.95) << ratio;
  }
}

TEST(Leader, IsTheLargerMagnitudeAndTheFirstAtATie) {
  EXPECT_TRUE(Leader<double>(2, 1).is_first);
  EXPECT_TRUE(Leader<double>(1, 1).is_first);
  EXPECT_TRUE(Leader<double>(1, -1).is_first);
  const Leader<double> negative(1, -4);
  EXPECT_FALSE(negative.is_first);
  EXPECT_EQ(negative.value, -4);
  EXPECT_EQ(negative.ratio, -0.25);
}

const std::vector<GradientRule> kPairRules =
    every<GradientRule>({PowerIteration{.terms = 1}, Taylor{.terms = 2}, Lorentzian{.width = 0.3},
                         Masked{.tolerance = 0.01}});

template <typename T>
T weight(const GradientRule& rule, std::int64_t n, T largest, T l_i, T l_j, T b_ij, T b_ji) {
  return std::visit(
      [&](const auto& r) { return pair_weight<T>(r, n)(largest, l_i, l_j, b_ij, b_ji); }, rule);
}

template <typename T>
void expect_plain_weights() {
  for (const GradientRule& rule : kPairRules)
    for (const auto& [l_i, l_j] : {std::pair{3.0, 1.0},
                                   {3.0, 2.875},
                                   {3.0, -1.0},
                                   {1.0, -3.0},
                                   {-1.0, -2.0},
                                   {2.0, 0.0},
                                   {0.0, -2.0},
                                   {2.0, -2.0}}) {
      const double truth = double(std::visit(
          PlainPairWeight{2, std::max(std::abs(l_i), std::abs(l_j)), l_i, l_j, 0.5, -2}, rule));
      const T largest = T(std::max(std::abs(l_i), std::abs(l_j)));
      const T ours = weight<T>(rule, 2, largest, T(l_i), T(l_j), T(0.5), T(-2));
      EXPECT_NEAR(ours, truth, rounding<T>(4, std::abs(truth) + 1 / double(largest)))
          << to_string(rule) << " at " << l_i << ", " << l_j;
    }
}
TEST(PairWeight, IsTheMathematicsInFloat) { expect_plain_weights<float>(); }
TEST(PairWeight, IsTheMathematicsInDouble) { expect_plain_weights<double>(); }

/// The size of the terms whose sum is the weight.
double size_of_terms(const GradientRule& rule, PlainPairWeight pair) {
  pair.b_ji = std::abs(pair.b_ij) + std::abs(pair.b_ji);
  pair.b_ij = -pair.b_ji;
  return std::visit(
      [&](const auto& r) {
        if constexpr (requires { r.terms; }) {
          const Real leader = std::max(std::abs(pair.l_i), std::abs(pair.l_j));
          const Real q = std::min(std::abs(pair.l_i), std::abs(pair.l_j)) / leader;
          return double(plain_geometric_sum(r.terms, q) * pair.b_ji / leader);
        } else {
          return double(std::abs(pair(r)));
        }
      },
      rule);
}

template <typename T>
void expect_plain_weights_at_random() {
  Random random(11);
  for (int k = 0; k < 3000; ++k)
    for (const GradientRule& rule : kPairRules) {
      const T l = T(random.normal()), apart = T(std::exp(-10 * random.uniform())), l_j = l - apart;
      const T largest = 3 * std::max(std::abs(l), std::abs(l_j));
      const T b_ij = T(random.normal()), b_ji = T(random.normal());
      const PlainPairWeight pair{5, largest, l, l_j, b_ij, b_ji};
      EXPECT_NEAR(weight<T>(rule, 5, largest, l, l_j, b_ij, b_ji), double(std::visit(pair, rule)),
                  rounding<T>(8, size_of_terms(rule, pair)))
          << to_string(rule) << " at " << l << ", " << l_j;
    }
}
TEST(PairWeight, IsTheMathematicsAtRandomInFloat) { expect_plain_weights_at_random<float>(); }
TEST(PairWeight, IsTheMathematicsAtRandomInDouble) { expect_plain_weights_at_random<double>(); }

TEST(PairWeight, ManyTermsAreTheAnalyticRule) {
  for (const auto& [l_i, l_j] : {std::pair{3.0, 1.0}, {3.0, -1.0}, {1.0, -3.0}, {-1.0, -2.0}}) {
    const double truth = weight<double>(Analytic{}, 2, 3, l_i, l_j, 0.5, -2);
    EXPECT_NEAR(weight<double>(PowerIteration{.terms = 200}, 2, 3, l_i, l_j, 0.5, -2), truth,
                rounding<double>(4, std::abs(truth)));
    EXPECT_NEAR(weight<double>(Taylor{.terms = 200}, 2, 3, l_i, l_j, 0.5, -2), truth,
                rounding<double>(4, std::abs(truth)));
  }
}

TEST(PairWeight, AtARepeatedEigenvalue) {
  EXPECT_EQ(weight<double>(PowerIteration{.terms = 19}, 2, 2, 2, 2, 0, 1), 19.0 / 4);
  EXPECT_EQ(weight<double>(PowerIteration{.terms = 19}, 2, 2, 2, 2, 1, 0), -18.0 / 4);
  EXPECT_EQ(weight<double>(Taylor{.terms = 9}, 2, 2, 2, 2, 1, 0), -9.0 / 4);
  EXPECT_EQ(weight<double>(Lorentzian{}, 2, 2, 2, 2, 1, 0), 0);
  EXPECT_EQ(weight<double>(Masked{}, 2, 2, 2, 2, 1, 0), 0);
  EXPECT_TRUE(std::isinf(weight<double>(Analytic{}, 2, 2, 2, 2, 1, 0)));
  for (const GradientRule& rule : kPairRules)
    if (!std::holds_alternative<Analytic>(rule)) {
      EXPECT_EQ(weight<double>(rule, 2, 0, 0, 0, 1, -1), 0) << to_string(rule) << " at two zeros";
    }
}

TEST(PairWeight, WidthsWhoseSquareUnderflows) {
  for (const double width : {1e-170, 1e-300})
    for (const double gap : {0.0, width / 2, width, 0.5}) {
      // 1 / gap / (1 + (width / gap)^2), half of it times B_ji - B_ij = 1
      const double truth = gap == 0 ? 0 : 0.5 / (gap + width * (width / gap));
      const double l_j = gap == 0.5 ? 0.5 : -gap, l_i = gap == 0.5 ? 1 : 0;
      const PlainPairWeight pair{2, 1, l_i, l_j, 0, 1};
      EXPECT_NEAR(double(pair(Lorentzian{.width = width})), truth, rounding<double>(2, truth))
          << gap;
      EXPECT_NEAR(weight<double>(Lorentzian{.width = width}, 2, 1, l_i, l_j, 0, 1), truth,
                  rounding<double>(2, truth))
          << gap;
    }
  for (const float gap : {0.0f, 1e-30f, 0.5f})
    EXPECT_TRUE(std::isfinite(weight<float>(Lorentzian{.width = 1e-30}, 2, 1, gap, 0, 0, 1)));
}

TEST(PairWeight, ScalesAsOneOverTheEigenvalue) {
  for (const GradientRule& rule : kPairRules)
    for (const float c : {1e-20f, 1e-10f, 1e10f, 1e19f}) {
      const float l_i = 3, l_j = 2.5f;
      const double once = weight<float>(rule, 2, l_i, l_i, l_j, 0.5f, -2.0f);
      const double moved = weight<float>(rule, 2, c * l_i, c * l_i, c * l_j, 0.5f, -2.0f);
      EXPECT_NEAR(moved * double(c), once, rounding<float>(8, std::abs(once)))
          << to_string(rule) << ", c = " << c;
    }
}

TEST(PairWeight, TheDefaultMaskIsTenRoundingsTimesTheRootOfN) {
  const float eps = std::numeric_limits<float>::epsilon();
  EXPECT_EQ(weight<float>(Masked{}, 16, 1, 1, 1 - 39 * eps, 0, 1), 0);
  EXPECT_GT(weight<float>(Masked{}, 16, 1, 1, 1 - 41 * eps, 0, 1), 0);
}

}  // namespace
}  // namespace keel::testing
