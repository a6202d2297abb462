// The CUDA solver that gives each matrix of n <= 4 one thread, run on the host.

#include "formulas/eigh_one_thread.h"

#include <gtest/gtest.h>

#include "support/eigen_quality.h"
#include "support/solve.h"
#include "support/spectrum_zoo.h"

namespace keel::testing {
namespace {

template <typename T, int N>
Solved<T> solve_in_one_thread(const T* matrix) {
  Solved<T> s{std::vector<T>(N, T(77)), Batch<T>(1, N), {}};
  const OneThreadEigh<T, N> solved([&](int i, int j) {
    EXPECT_LE(j, i);
    return matrix[i * N + j];
  });
  solved.give([&](int place, T x) { s.values[std::size_t(place)] = x; },
              [&](int i, int place, T x) { s.vectors(0, i, place) = x; });
  s.status.push_back(solved.finite() ? EighStatus::converged : EighStatus::not_finite);
  return s;
}

template <typename T>
Solved<T> solve_in_one_thread(const Batch<T>& m, std::int64_t b = 0) {
  switch (m.n) {
    case 1:
      return solve_in_one_thread<T, 1>(m.matrix(b));
    case 2:
      return solve_in_one_thread<T, 2>(m.matrix(b));
    case 3:
      return solve_in_one_thread<T, 3>(m.matrix(b));
    default:
      return solve_in_one_thread<T, 4>(m.matrix(b));
  }
}

template <typename T>
void expect_good(const Batch<T>& m, std::int64_t b, double more_residual = 0) {
  const std::int64_t n = m.n;
  const Solved<T> s = solve_in_one_thread(m, b);
  EXPECT_EQ(s.status[0], EighStatus::converged);
  const EigenQuality quality = eigen_quality(n, m.matrix(b), s.values.data(), s.vectors.matrix(0));
  EXPECT_LE(quality.residual, 8 * kEps<T> + more_residual);
  EXPECT_LE(quality.orthogonality, 8 * kEps<T>);
  for (std::int64_t j = 0; j < n; ++j) {
    if (j > 0) {
      EXPECT_GE(s.values[std::size_t(j - 1)], s.values[std::size_t(j)]);
    }
    T peak = 0;
    for (std::int64_t i = 0; i < n; ++i)
      if (std::abs(s.vectors(0, i, j)) > std::abs(peak)) peak = s.vectors(0, i, j);
    EXPECT_GT(peak, 0);
  }
}

template <typename T>
class EighOneThread : public ::testing::Test {};
using OneThreadTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(EighOneThread, OneThreadTypes);

TYPED_TEST(EighOneThread, TheZooAndRandomMatrices) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 3, 4}) {
    for (const auto& each : spectrum_zoo<T>(n)) {
      SCOPED_TRACE(each.name + ", n = " + std::to_string(n));
      expect_good(each.matrix, 0, each.name == "denormal" ? 1.0 / 32 : 0);
    }
    const Batch<T> many = as<T>(random_symmetric(2000, n, 5));
    for (std::int64_t b = 0; b < many.batch; ++b) expect_good(many, b);
  }
}

TYPED_TEST(EighOneThread, LonelyRowsKeepTheirEigenvaluesToTheLastBit) {
  using T = TypeParam;
  for (const std::int64_t n : {2, 3, 4})
    for (std::int64_t lonely = 0; lonely < n; ++lonely) {
      Batch<T> m = as<T>(random_symmetric(1, n, 9));
      for (std::int64_t i = 0; i < n; ++i)
        if (i != lonely) m(0, i, lonely) = m(0, lonely, i) = 0;
      m(0, lonely, lonely) = T(1e-9);
      const Solved<T> s = solve_in_one_thread(m);
      EXPECT_EQ(std::count(s.values.begin(), s.values.end(), T(1e-9)), 1);
      EXPECT_EQ(unit_columns(s.vectors, 0, [&](std::int64_t i) { return i == lonely; }), 1);
    }
}

TYPED_TEST(EighOneThread, WhatIsNotFiniteIsNaN) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 3, 4})
    for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
      Batch<T> m = as<T>(random_symmetric(1, n, 9));
      m(0, n - 1, 0) = bad;
      const Solved<T> s = solve_in_one_thread(m);
      EXPECT_EQ(s.status[0], EighStatus::not_finite);
      for (const T x : s.values) EXPECT_TRUE(std::isnan(x));
      for (const T x : s.vectors.data) EXPECT_TRUE(std::isnan(x));
    }
}

}  // namespace
}  // namespace keel::testing
