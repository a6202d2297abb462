// Correctness of the gradients: against the reference, the paper's chain written out, and finite differences.

#include "keel/gradient_rule.h"

#include <gtest/gtest.h>

#include "support/deflation_chain.h"
#include "support/finite_differences.h"
#include "support/gradient_rule_contract.h"

namespace keel::testing {
namespace {

template <typename T>
class GradientRuleOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GradientRuleOf, Types);

// Also for l and -l, which power iteration cannot order, and for masked pairs.
TYPED_TEST(GradientRuleOf, IsTheSameInEitherOrder) {
  using T = TypeParam;
  Solved<T> s = solve(as<T>(random_symmetric(1, 6, 27)));
  s.values = {T(3), T(1.0005), T(1), T(0), T(-1), T(-2)};
  const Batch<T> g = as<T>(random_matrices(1, 6, 28));
  const std::vector<T> h = as<T>(Random(29).normals(6));
  Solved<T> gradients{h, g, {}};
  const Solved<T> up = backwards(s), gradients_up = backwards(gradients);
  for (const GradientRule& rule : kGradientRules) {
    SCOPED_TRACE(to_string(rule));
    const double magnitude = 1 + kernel_bound(rule, as<double>(s).values);
    EXPECT_LE(largest_difference(
                  backward(rule, s, &h, &g),
                  as<double>(backward(rule, up, &gradients_up.values, &gradients_up.vectors))),
              rounding<T>(6, 4 * magnitude));
  }
}

std::vector<Column> columns_of(const Batch<double>& m, const std::vector<std::size_t>& order) {
  std::vector<Column> columns;
  for (const std::size_t j : order) {
    columns.emplace_back();
    for (std::int64_t i = 0; i < m.n; ++i) columns.back().push_back(m(0, i, std::int64_t(j)));
  }
  return columns;
}

/// The relative distance between the closed form and the chain, which deflates by decreasing magnitude.
double distance_from_chain(const Batch<double>& m, int terms, bool by_cpu) {
  const Solved<double> s = solve_by_reference(m);
  std::vector<std::size_t> order(std::size_t(m.n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(s.values[a]) > std::abs(s.values[b]);
  });
  const Batch<double> g = random_matrices(1, m.n, 31);
  const std::vector<double> h = Random(32).normals(m.n);
  std::vector<double> h_in_order;
  for (const std::size_t i : order) h_in_order.push_back(h[i]);
  const Batch<double> chain = DeflationChain(m, columns_of(s.vectors, order), terms)
                                  .backward(columns_of(g, order), h_in_order);
  const GradientRule rule = PowerIteration{.terms = terms};
  const Batch<double> closed =
      by_cpu ? backward(rule, s, &h, &g) : backward_by_reference(rule, s, &h, &g);
  return largest_difference(closed, chain) / largest_entry(chain);
}

TEST(PowerIterationRule, IsThePapersDeflationChain) {
  for (const std::int64_t n : {4, 8, 16, 32, 64})
    for (const bool by_cpu : {false, true}) {
      Batch<double> m = wishart(n, 4 * n, std::uint64_t(n));
      for (std::int64_t i = 0; i < n; ++i) m(0, i, i) += 1e-4;
      EXPECT_LE(distance_from_chain(m, 19, by_cpu), kSameFormula) << "n = " << n;
    }
  for (const int terms : {1, 2, 5, 50})
    EXPECT_LE(distance_from_chain(wishart(8, 40, 5), terms, true), kSameFormula) << terms;
}

TEST(PowerIterationRule, IsTheChainForIndefiniteMatricesToo) {
  // An even number of steps, because each step flips the vector of a negative eigenvalue.
  const Batch<double> m = with_spectrum({4, 2, 0.5, -1, -3}, 6);
  for (const bool by_cpu : {false, true})
    for (const int terms : {2, 20}) EXPECT_LE(distance_from_chain(m, terms, by_cpu), kSameFormula);
}

/// h . l(M) + <g, V(M)>, with the signs of V taken from `start`.
double linear_loss(const Batch<double>& m, const Batch<double>& g, const std::vector<double>& h,
                   const Batch<double>& start) {
  const Solved<double> s = solve_by_reference(m);
  double loss = 0;
  for (std::int64_t j = 0; j < m.n; ++j) {
    double along = 0, alignment = 0;
    for (std::int64_t i = 0; i < m.n; ++i) {
      along += g(0, i, j) * s.vectors(0, i, j);
      alignment += start(0, i, j) * s.vectors(0, i, j);
    }
    loss += h[std::size_t(j)] * s.values[std::size_t(j)] + (alignment < 0 ? -along : along);
  }
  return loss;
}

TEST(ExactRules, AgreeWithFiniteDifferences) {
  for (const std::uint64_t seed : {1, 2, 3})
    for (const std::int64_t n : {2, 5, 9}) {
      const Batch<double> m = with_spectrum(spectrum(n, [](double i) { return i - 2.5; }), seed);
      const Solved<double> s = solve_by_reference(m);
      const Batch<double> g = random_matrices(1, n, seed + 10);
      const std::vector<double> h = Random(seed + 20).normals(n);
      // The series need enough terms for the largest ratio here, 5.5/6.5 in magnitude.
      for (const GradientRule& rule :
           {GradientRule(Analytic{}), GradientRule(Masked{}), GradientRule(Taylor{.terms = 300}),
            GradientRule(PowerIteration{.terms = 300})}) {
        // +-0.5 and +-1.5 tie in magnitude, where the series never converges.
        if (!std::holds_alternative<Analytic>(rule) && !std::holds_alternative<Masked>(rule) &&
            n > 3)
          continue;
        const Batch<double> gradient = backward(rule, s, &h, &g);
        for (const std::uint64_t direction_seed : {41, 42, 43}) {
          const Batch<double> direction = random_symmetric(1, n, direction_seed);
          const double truth = directional_derivative(
              [&](const Batch<double>& x) { return linear_loss(x, g, h, s.vectors); }, m, direction,
              1e-3);
          EXPECT_NEAR(inner(gradient, direction), truth, by_differences(10 * double(n)))
              << to_string(rule) << ", n = " << n;
        }
      }
    }
}

TEST(MaskedRule, IsExactForLossesOfWholeEigenspaces) {
  // <A, P> + 3 trace(P M), P the projector on the two eigenvectors with eigenvalue 1.
  const Batch<double> m = with_spectrum({2, 2, 1, 1, 0.5}, 51), a = random_symmetric(1, 5, 52);
  const auto loss = [&](const Batch<double>& x) {
    const Solved<double> s = solve_by_reference(x);
    double sum = 0;
    for (std::int64_t k = 2; k < 4; ++k) {
      sum += 3 * s.values[std::size_t(k)];
      for (std::int64_t i = 0; i < 5; ++i)
        for (std::int64_t j = 0; j < 5; ++j)
          sum += a(0, i, j) * s.vectors(0, i, k) * s.vectors(0, j, k);
    }
    return sum;
  };
  const Solved<double> s = solve_by_reference(m);
  Batch<double> g(1, 5);
  std::vector<double> h(5, 0.0);
  for (std::int64_t k = 2; k < 4; ++k) {
    h[std::size_t(k)] = 3;
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t j = 0; j < 5; ++j) g(0, i, k) += 2 * a(0, i, j) * s.vectors(0, j, k);
  }
  const Batch<double> gradient = backward(GradientRule(Masked{}), s, &h, &g);
  for (const std::uint64_t seed : {53, 54, 55}) {
    const Batch<double> direction = random_symmetric(1, 5, seed);
    EXPECT_NEAR(inner(gradient, direction), directional_derivative(loss, m, direction, 1e-3),
                by_differences(20));
  }
}

TEST(EveryRule, IsExactForALossOfEigenvaluesOnly) {
  // sum of l^3 = trace(M^3). Its gradient is 3 M^2, with or without repeats.
  const Batch<double> m = with_spectrum({2, 2, 1, 1, 1, 0.5}, 61);
  const Solved<double> s = solve(m);
  std::vector<double> h;
  for (const double l : s.values) h.push_back(3 * l * l);
  Batch<double> truth(1, 6);
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t j = 0; j < 6; ++j)
      for (std::int64_t k = 0; k < 6; ++k) truth(0, i, j) += 3 * m(0, i, k) * m(0, k, j);
  for (const GradientRule& rule : kGradientRules)
    EXPECT_LE(largest_difference(backward<double>(rule, s, &h, nullptr), truth),
              rounding<double>(6, 12))
        << to_string(rule);
}

TEST(EveryRule, TheSimpleVectorOfDiag411IsExact) {
  const Batch<double> m = diagonal({4, 1, 1});
  const Solved<double> s = solve(m);
  Batch<double> g(1, 3);
  g(0, 0, 0) = 0.3, g(0, 1, 0) = -2, g(0, 2, 0) = 5;  // only for the first vector
  for (const GradientRule& rule : kGradientRules) {
    if (std::holds_alternative<Analytic>(rule)) continue;  // 0/0 inside the pair, as documented
    const Batch<double> gradient = backward<double>(rule, s, nullptr, &g);
    // What the series leave out, q^terms with q = 1/4, and what the Lorentzian removes.
    double bias = kSameFormula;
    if (const auto* p = std::get_if<PowerIteration>(&rule)) bias += std::pow(0.25, p->terms);
    if (const auto* t = std::get_if<Taylor>(&rule)) bias += std::pow(0.25, t->terms);
    if (const auto* l = std::get_if<Lorentzian>(&rule)) bias += std::pow(4 * l->width / 3, 2);
    EXPECT_NEAR(gradient(0, 0, 1), -2.0 / 6, 2.0 / 6 * bias) << to_string(rule);
    EXPECT_NEAR(gradient(0, 0, 2), 5.0 / 6, 5.0 / 6 * bias) << to_string(rule);
    EXPECT_EQ(gradient(0, 1, 2), 0) << to_string(rule);
  }
}

using GradientRuleOnCpu = OnFloats<Cpu>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCpu, GradientRuleContract, GradientRuleOnCpu);

}  // namespace
}  // namespace keel::testing
