// Cases where gradients often break: repeated eigenvalues, extreme scales, bad batch-mates, odd layouts.

#include <gtest/gtest.h>

#include <limits>

#include "keel/error.h"
#include "support/backward.h"
#include "support/eigen_quality.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

const GradientRule kBounded[] = {PowerIteration{}, Taylor{}, Lorentzian{}, Masked{}};

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

TYPED_TEST(GradientRuleRobustness, NaNStaysInItsMatrix) {
  using T = TypeParam;
  for (const std::int64_t n : {3, 4, 17}) {
    const std::int64_t batch = 70;
    const Solved<T> s = solve(as<T>(random_symmetric(batch, n, 76)));
    const Batch<T> g = as<T>(random_matrices(batch, n, 77));
    const std::vector<T> h = as<T>(Random(78).normals(batch * n));
    for (const GradientRule& rule : kBounded) {
      const Batch<T> before = backward(rule, s, &h, &g);
      Solved<T> bad = s;
      Batch<T> bad_g = g;
      const T nan = std::numeric_limits<T>::quiet_NaN();
      bad.values[std::size_t(2 * n)] = nan;
      bad.vectors(3, 1, 1) = nan;
      bad_g(4, 0, 2) = std::numeric_limits<T>::infinity();
      const Batch<T> after = backward(rule, bad, &h, &bad_g);
      for (std::int64_t b = 0; b < batch; ++b) {
        const bool same = bitwise_equal(before.matrix(b), after.matrix(b), n * n);
        EXPECT_EQ(same, b < 2 || b > 4) << to_string(rule) << ", matrix " << b;
      }
      for (const std::int64_t b : {3, 4})
        EXPECT_FALSE(std::isfinite(after(b, 0, 0))) << to_string(rule) << ", matrix " << b;
    }
  }
}

TYPED_TEST(GradientRuleRobustness, TheExecutorAndThePlaceDoNotMatter) {
  using T = TypeParam;
  for (const auto& [n, batch] : {std::pair{2, 999}, {4, 300}, {9, 50}, {33, 7}}) {
    const Solved<T> s = solve(as<T>(random_symmetric(batch, n, 79)));
    const Batch<T> g = as<T>(random_matrices(batch, n, 80));
    const GradientRule rule = PowerIteration{};
    const Batch<T> one = backward<T>(rule, s, nullptr, &g);
    for (const int count : {2, 3})
      EXPECT_TRUE(bitwise_equal(one.data, backward<T>(rule, s, nullptr, &g, threads(count)).data));
    const std::int64_t last = batch - 1;
    Solved<T> alone{{s.values.end() - n, s.values.end()}, Batch<T>(1, n), {}};
    alone.vectors.set(0, s.vectors.matrix(last));
    Batch<T> alone_g(1, n);
    alone_g.set(0, g.matrix(last));
    EXPECT_TRUE(bitwise_equal(backward<T>(rule, alone, nullptr, &alone_g).matrix(0),
                              one.matrix(last), std::int64_t(n) * n));
  }
}

TYPED_TEST(GradientRuleRobustness, RowStrides) {
  using T = TypeParam;
  const std::int64_t n = 5, batch = 3, row = 9, step = 50;
  const Solved<T> s = solve(as<T>(random_symmetric(batch, n, 81)));
  const Batch<T> g = as<T>(random_matrices(batch, n, 82));
  const Batch<T> packed = backward<T>(Taylor{}, s, nullptr, &g);
  const auto spread = [&](const Batch<T>& m) {
    std::vector<T> wide(batch * step, std::numeric_limits<T>::quiet_NaN());
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) wide[std::size_t(b * step + i * row + j)] = m(b, i, j);
    return wide;
  };
  const std::vector<T> vectors = spread(s.vectors), wide_g = spread(g);
  std::vector<T> out(batch * step, T(-77));
  cpu::eigh_backward<T>(Taylor{}, s.values.data(), {vectors.data(), batch, n, row, step}, nullptr,
                        {wide_g.data(), batch, n, row, step}, {out.data(), batch, n, row, step});
  for (std::int64_t k = 0; k < batch * step; ++k) {
    const std::int64_t b = k / step, i = k % step / row, j = k % step % row;
    ASSERT_EQ(out[std::size_t(k)], i < n && j < n ? packed(b, i, j) : T(-77));
  }
}

TYPED_TEST(GradientRuleRobustness, EmptyShapesAndErrors) {
  using T = TypeParam;
  const Solved<T> none{{}, Batch<T>(0, 3), {}}, empty{{}, Batch<T>(4, 0), {}};
  EXPECT_TRUE(backward<T>(Masked{}, none, nullptr, &none.vectors).data.empty());
  EXPECT_TRUE(backward<T>(Masked{}, empty, nullptr, &empty.vectors).data.empty());
  const Solved<T> s = solve(as<T>(random_symmetric(2, 3, 83)));
  const Batch<T> wrong(2, 4);
  EXPECT_THROW(backward<T>(Masked{}, s, nullptr, &wrong), Error);
  EXPECT_THROW(backward<T>(Taylor{.terms = 0}, s, nullptr, nullptr), Error);
}

}  // namespace
}  // namespace keel::testing
