// Cases where f(M) often breaks: singular and indefinite matrices, extreme scales, bad batch-mates.

#include <gtest/gtest.h>

#include <limits>

#include "formulas/divided_difference.h"
#include "keel/error.h"
#include "support/spectral.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
class SpectralRobustness : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SpectralRobustness, Types);

template <typename T>
bool all_nan(const Batch<T>& m, std::int64_t b = 0) {
  for (std::int64_t k = 0; k < m.n * m.n; ++k)
    if (!std::isnan(m.matrix(b)[k])) return false;
  return true;
}

TYPED_TEST(SpectralRobustness, OutsideTheDomainTheMatrixIsNaN) {
  using T = TypeParam;
  const Solved<T> negative = solve(as<T>(with_spectrum({2, 1, -1}, 1)));
  const Solved<T> singular = solve(as<T>(diagonal({2, 1, 0})));
  const Batch<T> c = as<T>(random_symmetric(1, 3, 2));
  const auto expect_nan = [&](SpectralFunction f, const Solved<T>& s, bool expected) {
    EXPECT_EQ(all_nan(spectral(f, s, {3})), expected) << to_string(f);
    for (const SpectralRule& rule : {SpectralRule(Exact{}), SpectralRule(Taylor{})})
      EXPECT_EQ(all_nan(spectral_backward(f, rule, s, {3}, c)), expected) << to_string(f);
    // f is never evaluated at dropped eigenvalues.
    EXPECT_TRUE(all_finite(spectral(f, s, {2}))) << to_string(f);
    EXPECT_TRUE(all_finite(spectral_backward(f, Exact{}, s, {2}, c))) << to_string(f);
  };
  for (const auto* s : {&negative, &singular}) {
    const bool is_negative = s == &negative;
    expect_nan({Kind::log}, *s, true);
    expect_nan({Kind::inv_sqrt}, *s, true);
    expect_nan({Kind::sqrt}, *s, is_negative);
    expect_nan({Kind::power, 0.3}, *s, is_negative);
    expect_nan({Kind::inv}, *s, !is_negative);
    expect_nan({Kind::power, -2}, *s, !is_negative);
    expect_nan({Kind::power, 3}, *s, false);
    expect_nan({Kind::exp}, *s, false);
    expect_nan({Kind::one}, *s, false);
  }
}

TYPED_TEST(SpectralRobustness, ARankAboveTheSizeMeansAllEigenvalues) {
  using T = TypeParam;
  const Solved<T> s = solve(as<T>(with_spectrum({3, 2, 1}, 1)));
  const Batch<T> c = as<T>(random_symmetric(1, 3, 2));
  const std::int64_t many = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(spectral<T>({Kind::sqrt}, s, {many}).data, spectral<T>({Kind::sqrt}, s, {3}).data);
  for (const SpectralRule& rule : {SpectralRule(Exact{}), SpectralRule(Taylor{})})
    EXPECT_EQ(spectral_backward({Kind::sqrt}, rule, s, {many}, c).data,
              spectral_backward({Kind::sqrt}, rule, s, {3}, c).data);
}

TYPED_TEST(SpectralRobustness, RoundingBelowZeroIsZeroUnderARoot) {
  using T = TypeParam;
  // -90 epsilons of the largest eigenvalue, 4: a covariance that was itself rounded.
  Solved<T> s{{T(4), T(1), T(-90 * kEps<T>)}, as<T>(random_orthogonal(3, 3)), {}};
  Solved<T> at_zero = s;
  at_zero.values[2] = 0;
  const Batch<T> c = as<T>(random_symmetric(1, 3, 4));
  for (const SpectralFunction& f : {SpectralFunction{Kind::sqrt}, {Kind::power, 0.25}}) {
    const Batch<T> root = spectral(f, s, {3});
    EXPECT_TRUE(all_finite(root));
    EXPECT_TRUE(bitwise_equal(root.data, spectral(f, at_zero, {3}).data));
    EXPECT_TRUE(bitwise_equal(spectral_backward(f, Exact{}, s, {3}, c).data,
                              spectral_backward(f, Exact{}, at_zero, {3}, c).data));
  }
  s.values[2] = T(-3e-2);
  EXPECT_TRUE(all_nan(spectral({Kind::sqrt}, s, {3})));
}

TYPED_TEST(SpectralRobustness, RootsOfTheZooAreFiniteWithTheirGradients) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 5, 16})
    for (const auto& [name, m] : spectrum_zoo<T>(n)) {
      const Solved<T> s = solve(m);
      const T noise = eigenvalue_noise<T>(n) * std::abs(s.values[0]);
      if (s.values.back() < -noise) continue;  // indefinite
      const Batch<T> c = as<T>(random_symmetric(1, n, 5));
      EXPECT_TRUE(all_finite(spectral({Kind::sqrt}, s, {n}))) << name << ", n = " << n;
      EXPECT_TRUE(all_finite(spectral_backward({Kind::sqrt}, Exact{}, s, {n}, c)))
          << name << ", n = " << n;
      // A projector only needs the order of the eigenvalues.
      EXPECT_TRUE(all_finite(spectral({Kind::one}, s, {(n + 1) / 2}))) << name << ", n = " << n;
    }
}

/// a b a^T.
Batch<double> conjugated(const Batch<double>& a, const Batch<double>& b) {
  const std::int64_t n = a.n;
  Batch<double> half(1, n), whole(1, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t j = 0; j < n; ++j) half(0, i, j) += a(0, i, k) * b(0, k, j);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t k = 0; k < n; ++k) whole(0, i, j) += half(0, i, k) * a(0, j, k);
  return whole;
}

double frobenius(const Batch<double>& a) {
  double square = 0;
  for (const double x : a.data) square += x * x;
  return std::sqrt(square);
}

TYPED_TEST(SpectralRobustness, RootsOfPositiveDefiniteMatricesAreRight) {
  using T = TypeParam;
  const std::int64_t n = 256;
  // As badly conditioned as a matrix of this type can be before its smallest eigenvalue is noise.
  const double noise = eigenvalue_noise<T>(n), smallest = 8 * noise;
  const std::vector<double> l =
      spectrum(n, [&](double i) { return std::pow(smallest, i / double(n - 1)); });
  const Batch<double> q = random_orthogonal(n, 12);  // as in with_spectrum, vectors are rows
  Batch<double> vectors(1, n), roots(1, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) vectors(0, i, j) = q(0, j, i);
  const Solved<T> s = solve(as<T>(with_spectrum(l, 12)));

  // Rounding moves M by `noise`, and its root by at most noise / (2 sqrt(smallest)).
  for (std::int64_t i = 0; i < n; ++i) roots(0, i, i) = std::sqrt(l[std::size_t(i)]);
  Batch<double> off = conjugated(vectors, roots);
  const Batch<T> root = spectral({Kind::sqrt}, s, {n});
  for (std::size_t k = 0; k < off.data.size(); ++k) off.data[k] -= double(root.data[k]);
  EXPECT_LE(largest_entry(off), noise / (2 * std::sqrt(smallest)));

  // 1 / (sqrt(x) + sqrt(y)) has a relative change of at most noise / smallest.
  const Batch<double> c = random_symmetric(1, n, 13);
  Batch<double> truth = conjugated(q, c);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) truth(0, i, j) /= roots(0, i, i) + roots(0, j, j);
  truth = conjugated(vectors, truth);
  const Batch<T> gradient = spectral_backward({Kind::sqrt}, Exact{}, s, {n}, as<T>(c));
  off = truth;
  for (std::size_t k = 0; k < off.data.size(); ++k) off.data[k] -= double(gradient.data[k]);
  EXPECT_LE(frobenius(off), noise / smallest * frobenius(truth));
}

TYPED_TEST(SpectralRobustness, ZerosComeOutWithinTheNoise) {
  using T = TypeParam;
  for (const std::int64_t n : {2, 3, 8, 33, 64, 128, 256})
    for (const std::uint64_t seed : {1, 2})
      for (const std::int64_t rank : {std::int64_t(1), (n + 1) / 2, n - 1}) {
        const auto at = [&](double top) {
          return with_spectrum(spectrum(n, [&](double i) { return i < double(rank) ? top : 0; }),
                               seed);
        };
        Batch<double> alike(1, n, 1.0);  // of rank one; all roundings have the same sign
        for (const Batch<double>& m : {wishart(n, rank, seed), at(1.0), alike})
          for (const std::int64_t batch : {1, n <= 64 ? 32 : 1}) {
            Batch<T> copies(batch, n);
            for (std::int64_t b = 0; b < batch; ++b) copies.set(b, m.matrix(0));
            const Solved<T> s = solve(copies);
            for (std::int64_t i = rank; i < n; ++i)
              EXPECT_LE(std::abs(s.values[std::size_t(i)]), eigenvalue_noise<T>(n) * s.values[0])
                  << "n = " << n << ", rank = " << rank << ", batch = " << batch;
          }
      }
}

TYPED_TEST(SpectralRobustness, ScalesAsTheFunctionDoes) {
  // f(x) = x^p: f(c M) = c^p f(M), and the gradient scales by c^(p-1). In float32 c = 1e-20 .. 1e19.
  using T = TypeParam;
  const std::pair<SpectralFunction, double> powers[] = {
      {{Kind::sqrt}, 0.5},           {{Kind::inv_sqrt}, -0.5},    {{Kind::power, 1.0 / 3}, 1.0 / 3},
      {{Kind::power, -0.25}, -0.25}, {{Kind::power, 0.75}, 0.75}, {{Kind::one}, 0}};
  const std::int64_t n = 6;
  const Solved<T> s = solve(as<T>(with_spectrum({3, 2, 2, 1, 1, 0.5}, 6)));
  const Batch<T> c = as<T>(random_symmetric(1, n, 7));
  for (const auto& [f, p] : powers)
    for (const std::int64_t kept : {6, 3})
      for (const SpectralRule& rule : {SpectralRule(Exact{}), SpectralRule(PowerIteration{}),
                                       SpectralRule(Lorentzian{}), SpectralRule(Masked{})}) {
        const Batch<double> once = as<double>(spectral_backward(f, rule, s, {kept}, c));
        for (const double factor : {1e-20, 1e-9, 1e9, 1e19}) {
          Solved<T> moved = s;
          for (T& l : moved.values) l = T(factor * double(l));
          Batch<double> gradient = as<double>(spectral_backward(f, rule, moved, {kept}, c));
          for (double& x : gradient.data) x /= std::pow(factor, p - 1);
          // Rounding the scaled eigenvalues changes their gaps, which affects the quotient rules.
          const double magnitude =
              std::holds_alternative<Exact>(rule) ? 4 : 1e4 * largest_entry(once);
          EXPECT_LE(largest_difference(gradient, once), rounding<T>(n, magnitude))
              << to_string(f) << ", " << to_string(rule) << ", c = " << factor;
        }
      }
}

TYPED_TEST(SpectralRobustness, RulesForEighReachTheEndOfTheRange) {
  // f(M) = M: every factor F is 1, even if twice an eigenvalue overflows.
  using T = TypeParam;
  const T most = std::numeric_limits<T>::max();
  const Solved<T> s{{most, most / 2}, as<T>(diagonal({1, 1})), {}};
  Batch<T> c(1, 2, T(1));
  for (const SpectralRule& rule : {SpectralRule(Analytic{}), SpectralRule(Masked{})}) {
    const Batch<T> gradient = spectral_backward({Kind::power, 1}, rule, s, {2}, c);
    EXPECT_LE(largest_difference(gradient, as<double>(c)), rounding<T>(2, 1)) << to_string(rule);
  }
}

// 1 and x^0 have a value for every number, but NaN stands for a matrix that could not be solved.
TYPED_TEST(SpectralRobustness, ValuesThatAreNaNGiveNaNUnderEveryFunction) {
  using T = TypeParam;
  Solved<T> s = solve(as<T>(with_spectrum({2, 1, 0.5}, 1)));
  const Batch<T> c = as<T>(random_symmetric(1, 3, 2));
  std::fill(s.values.begin(), s.values.end(), std::numeric_limits<T>::quiet_NaN());
  for (const SpectralFunction f : {SpectralFunction{Kind::one}, SpectralFunction{Kind::power, 0},
                                   SpectralFunction{Kind::exp}, SpectralFunction{Kind::log}})
    for (const std::int64_t rank : {1, 3}) {
      EXPECT_TRUE(all_nan(spectral(f, s, {rank}))) << to_string(f);
      EXPECT_TRUE(all_nan(spectral_backward(f, Exact{}, s, {rank}, c))) << to_string(f);
    }
}

TYPED_TEST(SpectralRobustness, NaNStaysInItsMatrix) {
  using T = TypeParam;
  const std::int64_t n = 4, batch = 80;
  Batch<double> m(batch, n);
  for (std::int64_t b = 0; b < batch; ++b)
    m.set(b, with_spectrum({4, 3, 2, 1}, std::uint64_t(b)).matrix(0));
  const Solved<T> s = solve(as<T>(m));
  const Batch<T> c = as<T>(random_matrices(batch, n, 8));
  const std::vector<std::int64_t> all = full_rank(batch, n);
  Batch<double> broken = m;
  broken(7, 2, 1) = std::numeric_limits<double>::quiet_NaN();
  broken(9, 2, 2) = -50;
  const Solved<T> t = solve(as<T>(broken));
  for (const SpectralFunction& f : kFunctions) {
    const Batch<T> before = spectral(f, s, all), after = spectral(f, t, all);
    const Batch<T> gradient = spectral_backward(f, Exact{}, s, all, c),
                   gradient_after = spectral_backward(f, Exact{}, t, all, c);
    EXPECT_TRUE(all_nan(after, 7) && all_nan(gradient_after, 7)) << to_string(f);
    for (std::int64_t b = 0; b < batch; ++b) {
      if (b == 7 || b == 9) continue;
      EXPECT_TRUE(bitwise_equal(before.matrix(b), after.matrix(b), n * n));
      EXPECT_TRUE(bitwise_equal(gradient.matrix(b), gradient_after.matrix(b), n * n));
    }
  }
}

TYPED_TEST(SpectralRobustness, TheExecutorDoesNotMatter) {
  using T = TypeParam;
  for (const auto& [n, batch] : {std::pair{2, 500}, {5, 90}, {33, 5}}) {
    Batch<double> m(batch, n);
    for (std::int64_t b = 0; b < batch; ++b)
      m.set(b, wishart(n, 2 * n, std::uint64_t(b)).matrix(0));
    const Solved<T> s = solve(as<T>(m));
    const Batch<T> c = as<T>(random_matrices(batch, n, 9));
    const std::vector<std::int64_t> rank = full_rank(batch, (n + 1) / 2);
    const SpectralFunction f{Kind::inv_sqrt};
    const Batch<T> forward = spectral(f, s, rank);
    const Batch<T> gradient = spectral_backward(f, Exact{}, s, rank, c);
    for (const int count : {2, 3}) {
      EXPECT_TRUE(bitwise_equal(forward.data, spectral(f, s, rank, threads(count)).data));
      EXPECT_TRUE(bitwise_equal(gradient.data,
                                spectral_backward(f, Exact{}, s, rank, c, threads(count)).data));
    }
  }
}

TYPED_TEST(SpectralRobustness, WhiteningMakesTheCovarianceTheIdentity) {
  using T = TypeParam;
  const std::int64_t n = 24;
  const Batch<T> m = as<T>(wishart(n, 20 * n, 10));
  const Batch<T> w = spectral({Kind::inv_sqrt}, solve(m), {n});
  double off = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = i == j ? -1 : 0;
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t l = 0; l < n; ++l)
          sum += double(w(0, i, k)) * double(m(0, k, l)) * double(w(0, l, j));
      off = larger(off, std::abs(sum));
    }
  EXPECT_LE(off, rounding<T>(n, 1));
}

TYPED_TEST(SpectralRobustness, EmptyShapesAndErrors) {
  using T = TypeParam;
  const Solved<T> none{{}, Batch<T>(0, 3), {}}, empty{{}, Batch<T>(2, 0), {}};
  EXPECT_TRUE(spectral({Kind::sqrt}, none, {}).data.empty());
  EXPECT_TRUE(spectral({Kind::sqrt}, empty, {0, 0}).data.empty());
  EXPECT_TRUE(spectral_backward({Kind::sqrt}, Exact{}, empty, {0, 0}, empty.vectors).data.empty());
  const Solved<T> s = solve(as<T>(random_symmetric(1, 3, 11)));
  EXPECT_THROW(spectral_backward({Kind::exp}, Exact{}, s, {3}, Batch<T>(1, 4)), Error);
  EXPECT_THROW(spectral_backward({Kind::exp}, Exact{.terms = 0}, s, {3}, Batch<T>(1, 3)), Error);
}

}  // namespace
}  // namespace keel::testing
