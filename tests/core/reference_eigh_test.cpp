#include <gtest/gtest.h>

#include <limits>

#include "support/eigen_quality.h"
#include "support/hermitian.h"
#include "support/solve.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

TEST(ReferenceEigh, SolvesTheZoo) {
  for (const std::int64_t n : {1, 2, 3, 4, 7, 16, 33})
    for (const auto& [name, m] : spectrum_zoo<double>(n)) {
      SCOPED_TRACE(name + ", n = " + std::to_string(n));
      const Solved<double> s = solve_by_reference(m);
      ASSERT_EQ(s.status[0], EighStatus::converged);
      const EigenQuality quality =
          eigen_quality(n, m.matrix(0), s.values.data(), s.vectors.matrix(0));
      // Subnormal values have fewer digits.
      const double floor = name == "denormal" ? 1.0 / 32 : 0;
      EXPECT_LE(quality.residual, rounding<double>(n, 1) + floor);
      EXPECT_LE(quality.orthogonality, rounding<double>(n, 1));
      EXPECT_TRUE(std::is_sorted(s.values.rbegin(), s.values.rend()));
    }
}

TEST(ReferenceEigh, SolvesTheComplexZoo) {
  for (const std::int64_t n : {1, 2, 3, 4, 7, 16, 33})
    for (const auto& [name, m] : zoo_of<std::complex<double>>(n)) {
      SCOPED_TRACE(name + ", n = " + std::to_string(n));
      const auto s = solve_by_reference(m);
      ASSERT_EQ(s.status[0], EighStatus::converged);
      const EigenQuality quality =
          eigen_quality(n, m.matrix(0), s.values.data(), s.vectors.matrix(0));
      const double floor = name == "denormal" ? 1.0 / 32 : 0;
      EXPECT_LE(quality.residual, rounding<double>(n, 1) + floor);
      EXPECT_LE(quality.orthogonality, rounding<double>(n, 1));
      EXPECT_TRUE(std::is_sorted(s.values.rbegin(), s.values.rend()));
    }
}

TEST(ReferenceEigh, FindsTheSpectrumItWasBuiltFrom) {
  const std::vector<double> values = {9, 4, 4, 1, 0.25, 0, -3};
  const Solved<double> s = solve_by_reference(with_spectrum(values, 5));
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(s.values[i], values[i], rounding<double>(7, 9));
}

TEST(ReferenceEigh, EveryFiniteMagnitudeWorks) {
  const Batch<double> m = with_spectrum({3, 2, 1, -1}, 2);
  const Solved<double> s = solve_by_reference(m);
  for (const int exponent : {-1000, -300, 300, 1020}) {
    Batch<double> moved = m;
    for (double& x : moved.data) x = std::ldexp(x, exponent);
    const Solved<double> t = solve_by_reference(moved);
    EXPECT_TRUE(bitwise_equal(s.vectors.data, t.vectors.data)) << exponent;
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(std::ldexp(s.values[i], exponent), t.values[i]) << exponent;
  }
}

TEST(ReferenceEigh, NotFiniteStaysInItsMatrix) {
  const double inf = std::numeric_limits<double>::infinity();
  Batch<double> m = random_symmetric(3, 4, 3);
  const Solved<double> before = solve_by_reference(m);
  m(1, 2, 1) = inf;
  const Solved<double> after = solve_by_reference(m);
  EXPECT_EQ(after.status[1], EighStatus::not_finite);
  for (std::int64_t k = 0; k < 16; ++k) EXPECT_TRUE(std::isnan(after.vectors.matrix(1)[k]));
  for (const std::int64_t b : {0, 2})
    EXPECT_TRUE(bitwise_equal(before.vectors.matrix(b), after.vectors.matrix(b), 16));
}

TEST(ReferenceEigh, EmptyShapes) {
  EXPECT_TRUE(solve_by_reference(Batch<double>(0, 4)).values.empty());
  EXPECT_EQ(solve_by_reference(Batch<double>(2, 0)).status[1], EighStatus::converged);
}

}  // namespace
}  // namespace keel::testing
