// The CUDA solver that gives each matrix of at most 4 x 4 one thread, run on the host.

#include "formulas/svd_one_thread.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/rectangles.h"

namespace keel::testing {
namespace {

template <typename T, int M, int N>
Factors<T> in_one_thread(const Rectangle<T>& a) {
  Factors<T> f(1, M, N);
  const OneThreadSvd<T, M, N> solved([&](int i, int j) { return a(i, j); });
  EXPECT_TRUE(solved.converged());
  for (int j = 0; j < N; ++j) {
    const int place = solved.place(j);
    f.values[std::size_t(place)] = solved.true_size(solved.value(j));
    for (int i = 0; i < M; ++i) f.left[std::size_t(solved.row(i) * N + place)] = solved.left(i, j);
    for (int i = 0; i < N; ++i)
      f.right[std::size_t(place * N + solved.column(i))] = solved.right(i, j);
  }
  f.status[0] = solved.finite() ? SvdStatus::converged : SvdStatus::not_finite;
  return f;
}

template <typename T>
Factors<T> in_one_thread(const Rectangle<T>& a) {
  return with_small_shape(a.rows, a.columns, [&](auto m, auto n) {
    return in_one_thread<T, decltype(m)::value, decltype(n)::value>(a);
  });
}

template <typename T>
class SvdOneThread : public ::testing::Test {};
using SvdOneThreadTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SvdOneThread, SvdOneThreadTypes);

TYPED_TEST(SvdOneThread, TheZooAndRandomMatrices) {
  using T = TypeParam;
  for (std::int64_t m = 1; m <= 4; ++m)
    for (std::int64_t n = 1; n <= m; ++n) {
      std::vector<NamedRectangle> all = rectangle_zoo(m, n);
      for (std::uint64_t k = 0; k < 1000; ++k)
        all.push_back({"random " + std::to_string(k), random_rectangle(m, n, 100 + k)});
      for (const auto& [name, exact] : all) {
        SCOPED_TRACE(name + ", " + std::to_string(m) + " x " + std::to_string(n));
        const Rectangle<T> matrix = as<T>(exact);
        const Factors<T> f = in_one_thread(matrix);
        EXPECT_EQ(f.status[0], SvdStatus::converged);
        const SvdQuality quality = quality_of(matrix, f.value(0), f.u(0), f.v(0));
        EXPECT_LE(quality.residual, rounding<T>(m, 1));
        EXPECT_LE(quality.orthogonality, rounding<T>(m, 1));
        for (std::int64_t j = 1; j < n; ++j) EXPECT_GE(f.value(0)[j - 1], f.value(0)[j]);
      }
    }
}

TYPED_TEST(SvdOneThread, SmallValuesOfSteepMatricesHaveTheirDigits) {
  using T = TypeParam;
  const double step = sizeof(T) == 4 ? 2e-3 : 1e-5;
  for (std::int64_t n = 2; n <= 4; ++n)
    for (std::int64_t m = n; m <= 4; ++m)
      expect_digits_where_steep<T>(
          m, n, step, [](const Rectangle<T>& matrix) { return in_one_thread(matrix); });
}

TYPED_TEST(SvdOneThread, WhatIsNotFiniteIsSaidToBe) {
  using T = TypeParam;
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::infinity()}) {
    Rectangle<T> a = as<T>(random_rectangle(4, 3, 2));
    a(3, 1) = bad;
    EXPECT_EQ(in_one_thread(a).status[0], SvdStatus::not_finite);
  }
}

}  // namespace
}  // namespace keel::testing
