// Cases where gradients often break: repeated eigenvalues, extreme scales, losses that rotations do not change.

#include <gtest/gtest.h>

#include <limits>

#include "support/eigen_quality.h"
#include "support/gradient_rule_contract.h"

namespace keel::testing {
namespace {

template <typename T>
class GradientRuleRobustness : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GradientRuleRobustness, Types);

TYPED_TEST(GradientRuleRobustness, FiniteOnTheZoo) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 5, 16})
    for (const auto& [name, m] : spectrum_zoo<T>(n)) {
      // There 1 / eigenvalue is not finite.
      if (name == "denormal" || name == "tiny") continue;
      const Solved<T> s = solve(m);
      const Batch<T> g = as<T>(random_matrices(1, n, 71));
      const std::vector<T> h = as<T>(Random(72).normals(n));
      for (const GradientRule& rule : kBounded)
        EXPECT_TRUE(all_finite(backward(rule, s, &h, &g)))
            << to_string(rule) << " on " << name << ", n = " << n;
    }
}

TYPED_TEST(GradientRuleRobustness, TheDefaultMaskTakesEqualEigenvaluesAndLeavesCloseOnes) {
  using T = TypeParam;
  const std::int64_t n = 256;
  const Batch<T> g = as<T>(random_matrices(1, n, 75));
  // The closest of a covariance's 255 neighbours are about 1e-4 of the largest apart, so none is masked.
  const Solved<T> apart = solve(as<T>(wishart(n, 4 * n, 76)));
  EXPECT_TRUE(bitwise_equal(backward<T>(Masked{}, apart, nullptr, &g).data,
                            backward<T>(Analytic{}, apart, nullptr, &g).data));
  // Two eigenvalues, each 128 times and equal up to rounding, and a loss that only sees whole eigenspaces.
  const Solved<T> s =
      solve(as<T>(with_spectrum(spectrum(n, [](double i) { return i < 128 ? 2 : 1; }), 77)));
  const Batch<double> weight = random_symmetric(1, n, 78), v = as<double>(s.vectors);
  Batch<double> along(1, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < 128; ++j)
      for (std::int64_t k = 0; k < n; ++k) along(0, i, j) += 2 * weight(0, i, k) * v(0, k, j);
  const Batch<T> direction = as<T>(along);
  const Batch<double> got = as<double>(backward<T>(Masked{}, s, nullptr, &direction));
  // The projector's gradient: kept against dropped, with a gap of 1.
  const Batch<double> exact = backward_by_reference(Masked{1e-3}, as<double>(s), nullptr, &along);
  EXPECT_LE(largest_difference(got, exact), rounding<T>(n, largest_entry(exact)));
}

TYPED_TEST(GradientRuleRobustness, ThePapersBoundHolds) {
  // |dL/dM| <= n K / eps |dL/dV| if every eigenvalue is at least eps.
  using T = TypeParam;
  const double eps = 1e-4;
  for (const std::int64_t n : {2, 8, 32})
    for (const double ratio : {0.5, 0.9, 0.999, 1.0})
      for (const double smallest : {eps, 1.0})
        for (const int terms : {1, 9, 19, 200}) {
          const auto at = [&](double i) { return smallest * std::pow(ratio, i - double(n - 1)); };
          const Solved<T> s = solve(as<T>(with_spectrum(spectrum(n, at), 73)));
          const Batch<T> g = as<T>(random_matrices(1, n, 74));
          const Batch<double> gradient =
              as<double>(backward<T>(PowerIteration{.terms = terms}, s, nullptr, &g));
          ASSERT_TRUE(all_finite(gradient));
          const double norm = frobenius(as<double>(g).data);
          EXPECT_LE(frobenius(gradient.data), double(n) * terms / eps * norm);
          // The closed form has a better bound: K over the smallest eigenvalue.
          const double slack = 1 + rounding<T>(n, 1) / smallest;
          EXPECT_LE(frobenius(gradient.data), terms / smallest * norm * slack);
        }
}

TYPED_TEST(GradientRuleRobustness, AntisymmetricRulesIgnoreWhatTurnsNothing) {
  // A loss that does not change when the vectors are rotated among themselves has a symmetric B.
  using T = TypeParam;
  for (const auto& [name, m] : spectrum_zoo<T>(8)) {
    if (name == "denormal" || name == "tiny") continue;
    const Solved<T> s = solve(m);
    // Masked with a tolerance and Lorentzian amplify the rounding in B by at most 1 / width.
    for (const GradientRule& rule : {GradientRule(Taylor{}), GradientRule(Lorentzian{.width = 0.1}),
                                     GradientRule(Masked{.tolerance = 0.1})}) {
      const Batch<T> g = s.vectors;  // B = I
      const Batch<T> gradient = backward<T>(rule, s, nullptr, &g);
      const double bound = kernel_bound(rule, as<double>(s.values));
      EXPECT_LE(largest_entry(gradient), rounding<T>(8, bound))
          << to_string(rule) << " on " << name;
    }
  }
}

TYPED_TEST(GradientRuleRobustness, ScalesAsOneOverTheMatrix) {
  using T = TypeParam;
  for (const auto& [name, m] : spectrum_zoo<T>(6)) {
    if (name == "denormal" || name == "tiny" || name == "huge") continue;
    const Solved<T> s = solve(m);
    const Batch<T> g = as<T>(random_matrices(1, 6, 75));
    for (const GradientRule& rule : kBounded) {
      const Batch<T> once = backward<T>(rule, s, nullptr, &g);
      for (const int exponent : {-66, -30, 30, 63}) {  // 1e-20 .. 1e19
        Solved<T> moved = s;
        for (T& l : moved.values) l = std::ldexp(l, exponent);
        const Batch<T> gradient = backward<T>(rule, moved, nullptr, &g);
        // The noise eigenvalues of a rank-deficient matrix may leave float's range in between.
        if (!all_finite(gradient) && largest_entry(once) > 1e15) continue;
        for (std::size_t k = 0; k < once.data.size(); ++k)
          ASSERT_NEAR(std::ldexp(double(gradient.data[k]), exponent), double(once.data[k]),
                      rounding<T>(1, largest_entry(once)))
              << to_string(rule) << " on " << name << ", 2^" << exponent;
      }
    }
  }
}

}  // namespace
}  // namespace keel::testing
