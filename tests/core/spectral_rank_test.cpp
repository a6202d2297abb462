#include <gtest/gtest.h>

#include <limits>

#include "keel/error.h"
#include "support/solve.h"
#include "support/spectral.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
std::int64_t rank_of(const RankPolicy& policy, const Batch<T>& m, const Solved<T>& s) {
  std::int64_t rank = -1;
  cpu::spectral_rank<T>(policy, m.view(), s.values.data(), s.vectors.view(), &rank);
  return rank;
}

template <typename T>
std::int64_t rank_of(const RankPolicy& policy, const Batch<T>& m) {
  return rank_of(policy, m, solve(m));
}

std::int64_t rank_by_reference(const RankPolicy& policy, const Batch<double>& m,
                               const Solved<double>& s) {
  std::int64_t rank = -1;
  reference::spectral_rank(policy, m.view(), s.values.data(), s.vectors.view(), &rank);
  return rank;
}

template <typename T>
class SpectralRank : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SpectralRank, Types);

TYPED_TEST(SpectralRank, ByCount) {
  const Batch<TypeParam> m = as<TypeParam>(diagonal({4, 3, 2, 1}));
  EXPECT_EQ(rank_of(FullRank{}, m), 4);
  EXPECT_EQ(rank_of(LeadingCount{.count = 3}, m), 3);
  EXPECT_EQ(rank_of(LeadingCount{.count = 100}, m), 4);
}

TYPED_TEST(SpectralRank, ByEnergyTheFewestThatReachIt) {
  const Batch<TypeParam> m = as<TypeParam>(diagonal({4, 2, 1, 1, 0, -1}));
  EXPECT_EQ(rank_of(LeadingEnergy{.fraction = 0.01}, m), 1);
  EXPECT_EQ(rank_of(LeadingEnergy{.fraction = 0.5}, m), 1);
  EXPECT_EQ(rank_of(LeadingEnergy{.fraction = 0.51}, m), 2);
  EXPECT_EQ(rank_of(LeadingEnergy{.fraction = 0.75}, m), 2);
  EXPECT_EQ(rank_of(LeadingEnergy{.fraction = 0.8}, m), 3);
  EXPECT_EQ(rank_of(LeadingEnergy{.fraction = 1}, m), 4);
}

TYPED_TEST(SpectralRank, AtLeastOneWhateverComes) {
  using T = TypeParam;
  for (const Batch<double>& m :
       {diagonal({0, 0, 0}), diagonal({-1, -2, -3}), diagonal({1e-9, 0, 0})})
    for (const RankPolicy& policy :
         {RankPolicy(LeadingEnergy{}), RankPolicy(Algorithm1{}), RankPolicy(LeadingCount{})})
      EXPECT_EQ(rank_of(policy, as<T>(m)), 1) << to_string(policy);
  // More than 99.99 % of the energy in one direction.
  EXPECT_EQ(rank_of(Algorithm1{}, as<T>(with_spectrum({1, 1e-5, 1e-5, 1e-5}, 1))), 1);
  EXPECT_EQ(rank_of(Algorithm1{.keep_reaching = false}, as<T>(diagonal({1, 0, 0}))), 1);
}

TYPED_TEST(SpectralRank, Algorithm1StopsAtEps) {
  const Batch<TypeParam> m = as<TypeParam>(diagonal({1, 0.5, 0.25, 0.125}));
  const auto stop = [](double eps) { return Algorithm1{.eps = eps, .energy = std::nullopt}; };
  EXPECT_EQ(rank_of(stop(0), m), 4);
  EXPECT_EQ(rank_of(stop(0.125), m), 3);  // "not above"
  EXPECT_EQ(rank_of(stop(0.3), m), 2);
  EXPECT_EQ(rank_of(stop(2), m), 1);
}

// As a layer adds eps to the variance 0 of a dead channel. Some of these grow when rounded to float.
TYPED_TEST(SpectralRank, Algorithm1StopsAtEpsAsTheTypeRoundsIt) {
  for (const double eps : {1e-2, 2e-3, 1e-3, 5e-4, 3e-4, 1e-4, 1e-5}) {
    const Batch<TypeParam> m = as<TypeParam>(diagonal({1, 0.5, eps, eps}));
    EXPECT_EQ(rank_of(Algorithm1{.eps = eps, .energy = std::nullopt}, m), 2) << eps;
  }
}

TYPED_TEST(SpectralRank, Algorithm1TakesAValueWithinRoundingOfEpsForEps) {
  using T = TypeParam;
  const std::int64_t n = 6;
  const double noise = 10 * n * kEps<T>;  // of the largest eigenvalue, 2
  for (const double beyond : {-3.0, -0.5, 0.5, 1.8, 2.2, 5.0}) {
    const double value = 0.25 + beyond * noise;
    const Batch<T> m = as<T>(diagonal({2, 1, 0.5, value, 0.25, 0.25 - noise}));
    const auto rank = [&](double eps, bool literal) {
      return rank_of(Algorithm1{.eps = eps, .energy = std::nullopt, .literal = literal}, m);
    };
    EXPECT_EQ(rank(0.25, false), beyond > 2 ? 4 : 3) << beyond;
    EXPECT_EQ(rank(0.25, true), beyond > 0 ? 4 : 3) << beyond;
    EXPECT_EQ(rank(0.2, false), 6) << beyond;
  }
  // Constant activations.
  EXPECT_EQ(rank_of(Algorithm1{}, as<T>(diagonal({1e-4, 1e-4, 1e-4}))), 1);
}

TYPED_TEST(SpectralRank, Algorithm1KeepsOrDropsEqualsOfTheOneThatReachesTheEnergy) {
  using T = TypeParam;
  const double step = 4 * kEps<T>;  // three of them are within the bound, 10 sqrt(6) epsilons of 4
  const Batch<T> m = as<T>(diagonal({4, 1 + step, 1, 1 - step, 0.5, 0.25}));
  const Solved<T> s = solve(m);
  // Which eigenvalue reaches the energy, counted from one.
  const std::pair<double, std::int64_t> table[] = {{0.5, 1},  {0.6, 2},  {0.7, 3},
                                                   {0.85, 4}, {0.95, 5}, {0.99, 6}};
  for (const auto& [energy, reaching] : table)
    for (const bool literal : {false, true})
      for (const bool keep : {false, true}) {
        const Algorithm1 policy{.energy = energy, .keep_reaching = keep, .literal = literal};
        const bool among_equals = reaching >= 2 && reaching <= 4 && !literal;
        const std::int64_t expected = std::max<std::int64_t>(
            1, among_equals ? (keep ? 4 : 1) : (keep ? reaching : reaching - 1));
        EXPECT_EQ(rank_of(policy, m, s), expected) << to_string(RankPolicy(policy));
        if (std::is_same_v<T, double>) {
          EXPECT_EQ(rank_by_reference(policy, as<double>(m), as<double>(s)), expected)
              << to_string(RankPolicy(policy));
        }
      }
}

TYPED_TEST(SpectralRank, Algorithm1StopsAtTheEnergy) {
  const Batch<TypeParam> m = as<TypeParam>(diagonal({4, 2, 1, 1}));
  EXPECT_EQ(rank_of(Algorithm1{.energy = 0.75}, m), 2);
  EXPECT_EQ(rank_of(Algorithm1{.energy = 0.75, .keep_reaching = false}, m), 1);
  EXPECT_EQ(rank_of(Algorithm1{.energy = 0.76}, m), 4);  // the last two are equal
  EXPECT_EQ(rank_of(Algorithm1{.energy = 0.76, .literal = true}, m), 3);
  EXPECT_EQ(rank_of(Algorithm1{}, m), 4);
  // The pseudo-code taken literally: the direction that completes the energy is dropped.
  EXPECT_EQ(rank_of(Algorithm1{.keep_reaching = false, .literal = true}, m), 3);
  EXPECT_EQ(rank_of(Algorithm1{.keep_reaching = false}, m), 2);
}

/// Replaces a vector by one that is not M's eigenvector and leans towards an earlier one.
Solved<double> spoiled(const Batch<double>& m, double lean) {
  Solved<double> s = solve(m);
  for (std::int64_t i = 0; i < m.n; ++i)
    s.vectors(0, i, 2) =
        std::sqrt(1 - lean * lean) * s.vectors(0, i, 2) + lean * s.vectors(0, i, 0);
  return s;
}

TEST(SpectralRankAlgorithm1, StopsWhereTheRayleighQuotientIsOff) {
  const Batch<double> m = with_spectrum({8, 2, 1, 0.5}, 2);
  const Algorithm1 policy{.energy = std::nullopt};
  EXPECT_EQ(rank_of(policy, m, solve(m)), 4);
  // Deflation removes most of what leaning on v_0 adds, so the values themselves must be wrong.
  Solved<double> s = solve(m);
  s.values[2] = 1.2;
  EXPECT_EQ(rank_of(policy, m, s), 2);
  EXPECT_EQ(rank_by_reference(policy, m, s), 2);
  EXPECT_EQ(rank_of(Algorithm1{.rayleigh_tolerance = std::nullopt, .energy = std::nullopt}, m, s),
            4);
}

TEST(SpectralRankAlgorithm1, TheShortcutIsTheDeflationChainToSecondOrder) {
  const Batch<double> m = with_spectrum({8, 2, 1, 0.5}, 3);
  for (const double lean : {1e-8, 1e-4, 1e-2, 0.1, 0.2, 0.5})
    for (const double tolerance : {1e-3, 1e-2, 0.1, 0.5}) {
      const Algorithm1 policy{.rayleigh_tolerance = tolerance, .energy = std::nullopt};
      const Solved<double> s = spoiled(m, lean);
      // To second order both are l (1 - lean^2). Skip if that is within lean^4 of the threshold.
      if (std::abs(lean * lean - tolerance) <= 8 * lean * lean * lean * lean) continue;
      EXPECT_EQ(rank_of(policy, m, s), rank_by_reference(policy, m, s))
          << "lean " << lean << ", tolerance " << tolerance;
    }
}

TYPED_TEST(SpectralRank, NoDriftFromDeflationInLargeMatrices) {
  using T = TypeParam;
  for (const std::int64_t n : {128, 256}) {
    const Batch<T> m = as<T>(wishart(n, 4 * n, 4));
    EXPECT_EQ(rank_of(Algorithm1{.energy = std::nullopt}, m), n);
    EXPECT_GE(rank_of(Algorithm1{}, m), n - 1);
  }
}

TYPED_TEST(SpectralRank, IsTheReferenceOnTheZoo) {
  using T = TypeParam;
  for (const auto& [name, m] : spectrum_zoo<T>(12)) {
    if (name == "denormal" || name == "huge") continue;
    // Equal values and noise may decide ties either way. These policies avoid ties.
    for (const RankPolicy& policy :
         {RankPolicy(LeadingCount{.count = 5}), RankPolicy(LeadingEnergy{.fraction = 0.777}),
          RankPolicy(Algorithm1{.eps = 1e-3, .energy = 0.777, .literal = true})}) {
      const Solved<T> s = solve(m);
      EXPECT_EQ(rank_of(policy, m, s), rank_by_reference(policy, as<double>(m), as<double>(s)))
          << to_string(policy) << " on " << name;
    }
  }
}

TYPED_TEST(SpectralRank, BatchesNaNAndExecutors) {
  using T = TypeParam;
  const std::int64_t n = 4, batch = 200;
  Batch<double> m(batch, n);
  for (std::int64_t b = 0; b < batch; ++b)
    m.set(b, wishart(n, 1 + b % 9, std::uint64_t(b)).matrix(0));
  m(17, 3, 1) = std::numeric_limits<double>::quiet_NaN();
  const Batch<T> typed = as<T>(m);
  const Solved<T> s = solve(typed);
  std::vector<std::int64_t> serially(batch), in_threads(batch);
  cpu::spectral_rank<T>(Algorithm1{}, typed.view(), s.values.data(), s.vectors.view(),
                        serially.data());
  cpu::spectral_rank<T>(Algorithm1{}, typed.view(), s.values.data(), s.vectors.view(),
                        in_threads.data(), threads(3));
  EXPECT_EQ(serially, in_threads);
  EXPECT_EQ(serially[17], 1);
  for (const std::int64_t rank : serially) EXPECT_TRUE(1 <= rank && rank <= n);
}

TYPED_TEST(SpectralRank, ReadsTheLowerTriangleOnly) {
  using T = TypeParam;
  Batch<T> m = as<T>(with_spectrum({8, 2, 1, 0.5}, 5));
  const Solved<T> s = solve(m);
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = i + 1; j < 4; ++j) m(0, i, j) = std::numeric_limits<T>::quiet_NaN();
  EXPECT_EQ(rank_of(Algorithm1{.energy = std::nullopt}, m, s), 4);
  EXPECT_THROW(rank_of(Algorithm1{}, Batch<T>(1, 5), s), Error);
}

}  // namespace
}  // namespace keel::testing
