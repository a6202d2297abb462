// Correctness of f(M) and its gradient: against algebra, the reference, eigh's own rules and finite differences.

#include <gtest/gtest.h>

#include "support/every.h"
#include "support/finite_differences.h"
#include "support/spectral.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
class Spectral : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Spectral, Types);

Batch<double> product(const Batch<double>& a, const Batch<double>& b) {
  Batch<double> c(1, a.n);
  for (std::int64_t i = 0; i < a.n; ++i)
    for (std::int64_t j = 0; j < a.n; ++j)
      for (std::int64_t k = 0; k < a.n; ++k) c(0, i, j) += a(0, i, k) * b(0, k, j);
  return c;
}

const std::vector<double> kRepeated = {3, 2, 2, 2, 1, 1, 0.5};

TYPED_TEST(Spectral, AlgebraHolds) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 5, 16, 33}) {
    const Batch<double> m =
        with_spectrum(spectrum(n, [](double i) { return 1 + std::fmod(i, 3); }), 3);
    const Solved<T> s = solve(as<T>(m));
    const std::vector<std::int64_t> all = full_rank(1, n);
    const auto of = [&](SpectralFunction f) { return as<double>(spectral(f, s, all)); };
    const double tolerance = rounding<T>(n, 9);
    const Batch<double> root = of({Kind::sqrt}), inverse_root = of({Kind::inv_sqrt});
    EXPECT_LE(largest_difference(product(root, root), m), tolerance);
    EXPECT_LE(largest_difference(product(root, inverse_root), of({Kind::one})), tolerance);
    EXPECT_LE(largest_difference(product(inverse_root, inverse_root), of({Kind::inv})), tolerance);
    EXPECT_LE(largest_difference(of({Kind::power, 2}), product(m, m)), tolerance);
    EXPECT_LE(largest_difference(of({Kind::power, 0.5}), root), tolerance);
    EXPECT_LE(largest_difference(of({Kind::power, -1}), of({Kind::inv})), tolerance);
    EXPECT_LE(largest_difference(of({Kind::power, 1}), m), tolerance);
    Batch<double> identity = diagonal(std::vector<double>(std::size_t(n), 1.0));
    EXPECT_LE(largest_difference(of({Kind::one}), identity), tolerance);
    const Batch<double> logarithm = of({Kind::log});
    EXPECT_LE(
        largest_difference(as<double>(spectral({Kind::exp}, solve(as<T>(logarithm)), all)), m),
        tolerance);
  }
}

TYPED_TEST(Spectral, ForwardIsTheReference) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 3, 4, 17, 40}) {
    const Solved<T> s =
        solve(as<T>(with_spectrum(spectrum(n, [](double i) { return 0.5 + std::fmod(i, 7); }), 4)));
    for (const SpectralFunction& f : kFunctions)
      for (const std::int64_t kept : {n, (n + 1) / 2}) {
        const Batch<double> truth = spectral_by_reference(f, as<double>(s), {kept});
        const Batch<T> ours = spectral(f, s, {kept});
        EXPECT_LE(largest_difference(ours, truth), rounding<T>(n, 1 + largest_entry(truth)))
            << to_string(f) << ", n = " << n << ", rank " << kept;
        EXPECT_TRUE(exactly_symmetric(ours));
      }
  }
}

TYPED_TEST(Spectral, BackwardIsTheReference) {
  using T = TypeParam;
  const SpectralRule rules[] = {Exact{},   Exact{.terms = 3},         PowerIteration{},
                                Taylor{},  Lorentzian{.width = 0.01}, Masked{.tolerance = 1e-3},
                                Analytic{}};
  for (const std::int64_t n : {1, 2, 4, 9, 20}) {
    const std::vector<double> values =
        spectrum(n, [&](double i) { return 0.5 + 5 * i / double(n); });
    const Solved<T> s = solve(as<T>(with_spectrum(values, 5)));
    const Batch<T> c = as<T>(random_matrices(1, n, 6));
    for (const SpectralFunction& f : kFunctions)
      for (const SpectralRule& rule : rules)
        for (const std::int64_t kept : {n, (n + 1) / 2}) {
          const Batch<double> truth =
              spectral_backward_by_reference(f, rule, as<double>(s), {kept}, as<double>(c));
          const Batch<T> ours = spectral_backward(f, rule, s, {kept}, c);
          // Under the quotient rules, rounding in f is divided by the gap.
          const double magnitude = largest_entry(truth) + double(n);
          EXPECT_LE(largest_difference(ours, truth), rounding<T>(n, 4 * magnitude))
              << to_string(f) << ", " << to_string(rule) << ", n = " << n << ", rank " << kept;
          EXPECT_TRUE(exactly_symmetric(ours));
        }
  }
}

TEST(SpectralExact, AgreesWithFiniteDifferencesAtRepeatsToo) {
  for (const auto& values : {kRepeated, {4.0, 2.5, 1.5, 0.75, 0.5}, {1.0, 1.0, 1.0}, {0.5}}) {
    const Batch<double> m = with_spectrum(values, 7);
    const std::int64_t n = m.n;
    const Solved<double> s = solve(m);
    const Batch<double> c = random_matrices(1, n, 8);
    for (const SpectralFunction& f : kFunctions) {
      const Batch<double> gradient = spectral_backward(f, Exact{}, s, full_rank(1, n), c);
      const auto loss = [&](const Batch<double>& x) {
        return inner(c, spectral_by_reference(f, solve_by_reference(x), full_rank(1, n)));
      };
      for (const std::uint64_t seed : {9, 10}) {
        const Batch<double> direction = random_symmetric(1, n, seed);
        EXPECT_NEAR(inner(gradient, direction), directional_derivative(loss, m, direction, 1e-3),
                    by_differences(20 * double(n)))
            << to_string(f);
      }
    }
  }
}

TEST(SpectralExact, OffDiagonalEntriesAtTheIdentity) {
  // d f(M)_ij = f'(1) dM_ij at M = I, split over the two equal entries.
  const Batch<double> identity = diagonal({1, 1, 1, 1});
  const Solved<double> s = solve(identity);
  Batch<double> c(1, 4);
  c(0, 2, 1) = 1;
  const std::pair<SpectralFunction, double> slopes[] = {
      {{Kind::sqrt}, 0.5}, {{Kind::log}, 1.0}, {{Kind::inv_sqrt}, -0.5}, {{Kind::inv}, -1.0}};
  for (const auto& [f, slope] : slopes) {
    const Batch<double> gradient = spectral_backward(f, Exact{}, s, full_rank(1, 4), c);
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 4; ++j)
        EXPECT_EQ(gradient(0, i, j), i + j == 3 && (i == 1 || i == 2) ? slope / 2 : 0)
            << to_string(f);
  }
}

TEST(SpectralRules, AreEighsOwnRulesWithTheChainRule) {
  // S = V f V^T: dL/dV = 2 C V diag(f), dL/dl = f' o diag(V^T C V).
  const std::vector<double> values = {3, 2.9, 1.5, 1, 0.5, 0.25};
  const Batch<double> m = with_spectrum(values, 11);
  const Solved<double> s = solve_by_reference(m);
  const Batch<double> c = random_symmetric(1, 6, 12);
  for (const GradientRule& rule :
       {GradientRule(Analytic{}), GradientRule(PowerIteration{.terms = 20}), GradientRule(Taylor{}),
        GradientRule(Lorentzian{.width = 0.1}), GradientRule(Masked{.tolerance = 0.1})})
    for (const std::int64_t kept : {6, 4}) {
      Batch<double> g(1, 6);
      std::vector<double> h(6, 0.0);
      const Batch<double> cv = product(c, s.vectors);
      for (std::int64_t k = 0; k < kept; ++k)
        for (std::int64_t i = 0; i < 6; ++i) {
          const double l = s.values[std::size_t(k)];
          g(0, i, k) = 2 * cv(0, i, k) / std::sqrt(l);
          h[std::size_t(k)] += s.vectors(0, i, k) * cv(0, i, k) * -0.5 * std::pow(l, -1.5);
        }
      const Batch<double> truth = backward_by_reference(rule, s, &h, &g);
      const SpectralRule same = std::visit([](const auto& r) { return SpectralRule(r); }, rule);
      for (const Batch<double>& ours :
           {spectral_backward({Kind::inv_sqrt}, same, s, {kept}, c),
            spectral_backward_by_reference({Kind::inv_sqrt}, same, s, {kept}, c)})
        EXPECT_LE(largest_difference(ours, truth), kSameFormula * largest_entry(truth))
            << to_string(rule) << ", rank " << kept;
    }
}

TEST(SpectralRules, PowerIterationIsBiasedWhereExactIsNot) {
  // d (M^-1/2)_01 / d M_01 for M = diag(1, ratio): the exact slope, and the one with 20 terms.
  const struct {
    double ratio, exact, power_iteration;
  } table[] = {{0.90, -0.541, -0.333}, {0.95, -0.520, 0.054}, {1.00, -0.500, 1.000}};
  for (const auto& [ratio, exact, power_iteration] : table) {
    const Solved<double> s = solve(diagonal({1, ratio}));
    Batch<double> c(1, 2);
    c(0, 0, 1) = c(0, 1, 0) = 1;
    const auto slope = [&](const SpectralRule& rule) {
      return spectral_backward({Kind::inv_sqrt}, rule, s, {2}, c)(0, 0, 1);
    };
    EXPECT_NEAR(slope(Exact{}), exact, 5e-4);
    EXPECT_NEAR(slope(PowerIteration{.terms = 20}), power_iteration, 5e-4);
  }
}

TEST(SpectralRules, MaskedMissesWhatSplitsAnEigenspace) {
  // S = M: the gradient is C itself. The mask cannot know it within the pair.
  const Solved<double> s = solve(diagonal({2, 1, 1}));
  const Batch<double> c = random_symmetric(1, 3, 22);
  const auto gradient = [&](const SpectralRule& rule) {
    return spectral_backward({Kind::power, 1}, rule, s, {3}, c);
  };
  EXPECT_LE(largest_difference(gradient(Exact{}), c), rounding<double>(3, 4));
  const Batch<double> masked = gradient(Masked{});
  EXPECT_EQ(masked(0, 1, 2), 0);
  EXPECT_NEAR(masked(0, 0, 1), c(0, 0, 1), rounding<double>(3, 4));
  EXPECT_NEAR(masked(0, 2, 2), c(0, 2, 2), rounding<double>(3, 4));
}

TEST(SpectralRankCut, AgreesWithFiniteDifferencesWhereTheSeriesConverges) {
  // Kept 3, 2, 2; dropped 0.5, 0.5, 0.25. In the second, the largest dropped one is negative.
  for (const auto& values :
       {std::vector<double>{3, 2, 2, 0.5, 0.5, 0.25}, {3, 2, 2, 0.5, 0.5, -8}}) {
    const Batch<double> m = with_spectrum(values, 13);
    const Solved<double> s = solve(m);
    const Batch<double> c = random_symmetric(1, 6, 14);
    for (const SpectralFunction& f : kFunctions) {
      const Batch<double> gradient = spectral_backward(f, Exact{.terms = 80}, s, {3}, c);
      const auto loss = [&](const Batch<double>& x) {
        return inner(c, spectral_by_reference(f, solve_by_reference(x), {3}));
      };
      for (const std::uint64_t seed : {15, 16}) {
        const Batch<double> direction = random_symmetric(1, 6, seed);
        EXPECT_NEAR(inner(gradient, direction), directional_derivative(loss, m, direction, 1e-3),
                    by_differences(100))
            << to_string(f);
      }
    }
  }
}

TYPED_TEST(Spectral, TwoDroppedEigenvaluesContributeNothingUnderAnyRule) {
  using T = TypeParam;
  const std::int64_t n = 6;
  const Solved<T> s = solve(as<T>(diagonal({5, 3, 1, 1, 1, 0})));
  const Batch<T> ones(1, n, T(1));
  for (const SpectralRule& rule : every<SpectralRule>())
    for (const SpectralFunction& f : {SpectralFunction{Kind::one}, SpectralFunction{Kind::exp}}) {
      const Batch<T> d = spectral_backward(f, rule, s, {2}, ones);
      EXPECT_LE(largest_difference(d, spectral_backward_by_reference(f, rule, as<double>(s), {2},
                                                                     as<double>(ones))),
                rounding<T>(n, 16 * largest_entry(d)))
          << to_string(rule);
      ASSERT_TRUE(all_finite(d)) << to_string(rule);
      for (std::int64_t i = 2; i < n; ++i)
        for (std::int64_t j = 2; j < n; ++j) EXPECT_EQ(d(0, i, j), 0) << to_string(rule);
    }
}

TEST(SpectralRankCut, IsBoundedWhereTheCutIsDegenerate) {
  const double l = 0.5;
  const Batch<double> m = with_spectrum({2, l, l, l}, 17);
  const Solved<double> s = solve(m);
  const Batch<double> c = random_symmetric(1, 4, 18);
  const auto norm = [](const Batch<double>& x) { return std::sqrt(inner(x, x)); };
  for (const int terms : {1, 19, 100}) {
    const Batch<double> gradient = spectral_backward({Kind::one}, Exact{.terms = terms}, s, {2}, c);
    ASSERT_TRUE(all_finite(gradient));
    EXPECT_LE(norm(gradient), terms / l * norm(c));
    EXPECT_GT(norm(gradient), 0);
  }
}

TYPED_TEST(Spectral, TheBasisOfAnEigenspaceDoesNotMatter) {
  using T = TypeParam;
  const Solved<T> s = solve(as<T>(with_spectrum(kRepeated, 19)));
  Solved<T> other = s;
  // The vectors of the threefold eigenvalue rotated among themselves, and some signs flipped.
  const Batch<double> turn = random_orthogonal(3, 20);
  for (std::int64_t i = 0; i < 7; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < 3; ++k) sum += turn(0, j, k) * double(s.vectors(0, i, 1 + k));
      other.vectors(0, i, 1 + j) = T(sum);
    }
    other.vectors(0, i, 5) = -s.vectors(0, i, 5);
  }
  const Batch<T> c = as<T>(random_matrices(1, 7, 21));
  for (const SpectralFunction& f : kFunctions)
    for (const std::int64_t kept : {7, 4}) {
      const Batch<double> a = as<double>(spectral_backward(f, Exact{}, s, {kept}, c));
      const Batch<T> b = spectral_backward(f, Exact{}, other, {kept}, c);
      EXPECT_LE(largest_difference(b, a), rounding<T>(7, 4 * (1 + largest_entry(a))))
          << to_string(f);
      const Batch<double> forward = as<double>(spectral(f, s, {kept}));
      EXPECT_LE(largest_difference(spectral(f, other, {kept}), forward),
                rounding<T>(7, 1 + largest_entry(forward)));
    }
}

}  // namespace
}  // namespace keel::testing
