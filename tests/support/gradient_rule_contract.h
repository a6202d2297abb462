#pragma once

// The contract in keel/gradient_rule.h, for every backend.

#include "keel/error.h"
#include "support/backend.h"
#include "support/backward.h"
#include "support/spectrum_zoo.h"

namespace keel::testing {

inline const GradientRule kGradientRules[] = {
    Analytic{},          PowerIteration{}, PowerIteration{.terms = 1}, Taylor{},
    Taylor{.terms = 30}, Lorentzian{},     Lorentzian{.width = 0.1},   Masked{.tolerance = 1e-3}};
inline const GradientRule kBounded[] = {PowerIteration{}, Taylor{}, Lorentzian{}, Masked{}};

/// With `gap` numbers between rows, and more between other arrays' rows.
template <typename Backend, typename T>
Batch<T> backward_by(const GradientRule& rule, const Solved<T>& s, const std::vector<T>* dL_dvalues,
                     const Batch<T>* dL_dvectors, std::int64_t gap = 0,
                     const typename Backend::Way& way = Backend::way()) {
  const std::int64_t batch = s.vectors.batch, n = s.vectors.n;
  typename Backend::template Numbers<T> values(s.values),
      h(dL_dvalues ? *dL_dvalues : std::vector<T>{});
  BatchIn<Backend::template Numbers, T> vectors(s.vectors, gap),
      g(dL_dvectors ? *dL_dvectors : Batch<T>(), 2 * gap), out(Batch<T>(batch, n, T(-77)), 3 * gap);
  Backend::template eigh_backward<T>(way, rule, values.data(), vectors.view(),
                                     dL_dvalues ? h.data() : nullptr,
                                     dL_dvectors ? g.view() : Matrices<T>{}, out.view());
  return out.back();
}

template <typename Case>
class GradientRuleContract : public ::testing::Test {};
TYPED_TEST_SUITE_P(GradientRuleContract);

TYPED_TEST_P(GradientRuleContract, IsTheReference) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 16, 17, 32, 33, 48, 64, 65, 100, 130}) {
    const Batch<double> m = with_spectrum(spectrum(n, [&](double i) { return 1.5 * i - 3; }), 21);
    const Solved<T> s = solve(as<T>(m));
    const Batch<T> g = as<T>(random_matrices(1, n, 22));
    const std::vector<T> h = as<T>(Random(23).normals(n));
    for (const GradientRule& rule : kGradientRules) {
      SCOPED_TRACE(to_string(rule) + ", n = " + std::to_string(n));
      const Solved<double> s64 = as<double>(s);
      const Batch<double> g64 = as<double>(g);
      const std::vector<double> h64 = as<double>(h);
      const Batch<T> ours = backward_by<B>(rule, s, &h, &g);
      const Batch<double> truth = backward_by_reference(rule, s64, &h64, &g64);
      const double magnitude = 1 + kernel_bound(rule, s64.values);
      EXPECT_LE(largest_difference(ours, truth), rounding<T>(n, 4 * magnitude));
      EXPECT_TRUE(exactly_symmetric(ours));
    }
  }
}

TYPED_TEST_P(GradientRuleContract, EitherGradientMayBeNull) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const std::int64_t n : {6, 24, 64, 66}) {
    const Solved<T> s = solve(as<T>(random_symmetric(3, n, 24)));
    const Batch<T> g = as<T>(random_matrices(3, n, 25));
    const std::vector<T> h = as<T>(Random(26).normals(3 * n)), no_h(h.size(), T(0));
    const std::vector<double> h64 = as<double>(h);
    for (const GradientRule& rule : kGradientRules) {
      SCOPED_TRACE(to_string(rule) + ", n = " + std::to_string(n));
      EXPECT_TRUE(bitwise_equal(backward_by<B, T>(rule, s, nullptr, &g).data,
                                backward_by<B, T>(rule, s, &no_h, &g).data));
      const Batch<double> truth = backward_by_reference(rule, as<double>(s), &h64, nullptr);
      EXPECT_LE(largest_difference(backward_by<B, T>(rule, s, &h, nullptr), truth),
                rounding<T>(n, 4));
      EXPECT_EQ(largest_entry(backward_by<B, T>(rule, s, nullptr, nullptr)), 0);
    }
  }
}

TYPED_TEST_P(GradientRuleContract, NaNStaysInItsMatrix) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const std::int64_t n : {3, 4, 16, 17, 64, 70})
    for (const std::int64_t batch : {7, 70}) {
      if (n > 17 && batch > 7) continue;
      const Solved<T> s = solve(as<T>(random_symmetric(batch, n, 76)));
      const Batch<T> g = as<T>(random_matrices(batch, n, 77));
      const std::vector<T> h = as<T>(Random(78).normals(batch * n));
      for (const GradientRule& rule : kBounded) {
        SCOPED_TRACE(to_string(rule) + ", n = " + std::to_string(n) +
                     ", batch = " + std::to_string(batch));
        const Batch<T> before = backward_by<B>(rule, s, &h, &g);
        Solved<T> bad = s;
        Batch<T> bad_g = g;
        bad.values[std::size_t(2 * n)] = std::numeric_limits<T>::quiet_NaN();
        bad.vectors(3, 1, 1) = std::numeric_limits<T>::quiet_NaN();
        bad_g(4, 0, 2) = std::numeric_limits<T>::infinity();
        const Batch<T> after = backward_by<B>(rule, bad, &h, &bad_g);
        for (std::int64_t b = 0; b < batch; ++b)
          EXPECT_EQ(bitwise_equal(before.matrix(b), after.matrix(b), n * n), b < 2 || b > 4)
              << "matrix " << b;
        for (const std::int64_t b : {3, 4}) EXPECT_FALSE(std::isfinite(after(b, 0, 0))) << b;
      }
    }
}

TYPED_TEST_P(GradientRuleContract, TheSameBitsEveryTimeAndInEveryPlace) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const auto& [n, batch] : {std::pair{2, 999}, {4, 300}, {9, 50}, {33, 7}}) {
    SCOPED_TRACE("n = " + std::to_string(n) + ", batch = " + std::to_string(batch));
    const Solved<T> s = solve(as<T>(random_symmetric(batch, n, 79)));
    const Batch<T> g = as<T>(random_matrices(batch, n, 80));
    const GradientRule rule = PowerIteration{};
    const Batch<T> once = backward_by<B, T>(rule, s, nullptr, &g);
    for (const auto& way : B::ways())
      EXPECT_TRUE(bitwise_equal(once.data, backward_by<B, T>(rule, s, nullptr, &g, 0, way).data));
    const std::int64_t last = batch - 1;
    Solved<T> alone{{s.values.end() - n, s.values.end()}, Batch<T>(1, n), {}};
    alone.vectors.set(0, s.vectors.matrix(last));
    Batch<T> alone_g(1, n);
    alone_g.set(0, g.matrix(last));
    EXPECT_TRUE(bitwise_equal(backward_by<B, T>(rule, alone, nullptr, &alone_g).matrix(0),
                              once.matrix(last), std::int64_t(n) * n));
  }
}

TYPED_TEST_P(GradientRuleContract, RowStrides) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const std::int64_t n : {5, 32, 64, 66}) {
    const Solved<T> s = solve(as<T>(random_symmetric(3, n, 81)));
    const Batch<T> g = as<T>(random_matrices(3, n, 82));
    EXPECT_TRUE(bitwise_equal(backward_by<B, T>(Taylor{}, s, nullptr, &g).data,
                              backward_by<B, T>(Taylor{}, s, nullptr, &g, 3).data))
        << "n = " << n;
  }
}

TYPED_TEST_P(GradientRuleContract, EmptyShapesAndErrors) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  const Solved<T> none{{}, Batch<T>(0, 3), {}}, empty{{}, Batch<T>(4, 0), {}};
  const std::vector<T>* const no_values = nullptr;
  const Batch<T>* const no_vectors = nullptr;
  EXPECT_TRUE(backward_by<B>(Masked{}, none, no_values, &none.vectors).data.empty());
  EXPECT_TRUE(backward_by<B>(Masked{}, empty, no_values, &empty.vectors).data.empty());
  const Solved<T> s = solve(as<T>(random_symmetric(2, 3, 83)));
  const Batch<T> wrong(2, 4);
  EXPECT_THROW(backward_by<B>(Masked{}, s, no_values, &wrong), Error);
  EXPECT_THROW(backward_by<B>(Taylor{.terms = 0}, s, no_values, no_vectors), Error);
}

REGISTER_TYPED_TEST_SUITE_P(GradientRuleContract, IsTheReference, EitherGradientMayBeNull,
                            NaNStaysInItsMatrix, TheSameBitsEveryTimeAndInEveryPlace, RowStrides,
                            EmptyShapesAndErrors);

}  // namespace keel::testing
