// Matrices large enough for panels, divide and conquer and several threads. They are checked in O(n^2) time with a
// few vectors, multiplied both by the decomposition and by the matrix.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "cpu/eigh_large.h"
#include "cpu/eigh_large_kernels.h"
#include "cpu/eigh_limits.h"
#include "support/solve.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
class EighLarge : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(EighLarge, Types);

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double entry : x) sum += entry * entry;
  return std::sqrt(sum);
}

/// For a few random unit vectors x, the worst of |V diag(l) V^T x - M x| / max |l|, |V^T V x - x| and |V V^T x - x|.
template <typename T>
double worst_probe(const Batch<T>& m, const Solved<T>& s) {
  const std::int64_t n = m.n;
  const auto size = std::size_t(n);
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  double largest = 0, worst = 0;
  for (const T value : s.values) largest = larger(largest, std::abs(double(value)));
  const auto times = [&](const std::vector<double>& x, bool transposed) {
    std::vector<double> y(size);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        y[std::size_t(transposed ? j : i)] +=
            double(s.vectors(0, i, j)) * x[std::size_t(transposed ? i : j)];
    return y;
  };
  for (int probe = 0; probe < 4; ++probe) {
    std::vector<double> x(size);
    for (double& entry : x) entry = normal(random);
    const double length = norm(x);
    for (double& entry : x) entry /= length;
    std::vector<double> inside = times(x, true), around = times(inside, false),
                        within = times(times(x, false), true), product(size);
    for (std::size_t i = 0; i < size; ++i) inside[i] *= double(s.values[i]);
    inside = times(inside, false);
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = 0; j < size; ++j)
        product[i] += double(i >= j ? m.data[i * size + j] : m.data[j * size + i]) * x[j];
    for (std::size_t i = 0; i < size; ++i) {
      inside[i] = (inside[i] - product[i]) / (largest > 0 ? largest : 1);
      around[i] -= x[i];
      within[i] -= x[i];
    }
    for (const auto& error : {inside, around, within}) worst = larger(worst, norm(error));
  }
  return worst;
}

/// Householder reductions of n steps leave about sqrt(n) roundings on a vector, a few of each kind.
template <typename T>
double probe_bound(std::int64_t n) {
  return 4 * std::sqrt(double(n)) * kEps<T>;
}

template <typename T>
void expect_solved(const std::string& name, const Batch<T>& m, const Executor& executor) {
  SCOPED_TRACE(name + ", n = " + std::to_string(m.n));
  const Solved<T> s = solve(m, executor);
  EXPECT_EQ(s.status[0], EighStatus::converged);
  EXPECT_LE(worst_probe(m, s), probe_bound<T>(m.n));
  EXPECT_TRUE(std::is_sorted(s.values.rbegin(), s.values.rend()));
  for (std::int64_t j = 0; j < m.n; ++j) {
    T peak = 0;
    for (std::int64_t i = 0; i < m.n; ++i)
      if (std::abs(s.vectors(0, i, j)) > std::abs(peak)) peak = s.vectors(0, i, j);
    ASSERT_GT(peak, 0) << "vector " << j;
  }
}

/// A random symmetric matrix plus `shift` on the diagonal. Every entry is random, because structured ones would
/// deflate.
template <typename T>
Batch<T> random_matrix(std::int64_t n, double shift, std::uint64_t seed) {
  Batch<T> m = as<T>(random_symmetric(1, n, seed));
  for (std::int64_t i = 0; i < n; ++i) m(0, i, i) += T(shift);
  return m;
}

/// Tridiagonal and other matrices that need no product to make. Divide and conquer deflates most of them.
template <typename T>
std::vector<Specimen<T>> cheap_zoo(std::int64_t n) {
  std::vector<Specimen<T>> zoo{{"wilkinson", as<T>(wilkinson(n))},
                               {"all ones", as<T>(Batch<double>(1, n, 1.0))}};
  Batch<double> graded(1, n), glued(1, n), hankel(1, n), clustered = random_symmetric(1, n, 9);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      graded(0, i, j) = std::pow(0.9, double(i + j)) * (1 + (i == j));
      hankel(0, i, j) = 1 / double(i + j + 1);
      clustered(0, i, j) = (i == j ? 1 + double(i % 4) : 0) + 1e-5 * clustered(0, i, j);
    }
  for (std::int64_t i = 0; i < n; ++i) {  // copies of W21 with weak links between them
    glued(0, i, i) = std::abs(double(i % 21) - 10);
    if (i > 0) glued(0, i, i - 1) = glued(0, i - 1, i) = i % 21 == 0 ? 1e-6 : 1;
  }
  zoo.push_back({"graded", as<T>(graded)});
  zoo.push_back({"glued wilkinson", as<T>(glued)});
  zoo.push_back({"hilbert", as<T>(hankel)});
  zoo.push_back({"clustered", as<T>(clustered)});
  return zoo;
}

TYPED_TEST(EighLarge, EverySizeAroundThePanels) {
  for (const std::int64_t n : {128, 129, 159, 160, 161, 192, 193, 255, 257})
    expect_solved("random", random_matrix<TypeParam>(n, 0, 3), serial());
}

TYPED_TEST(EighLarge, SpectraThatDeflate) {
  for (const std::int64_t n : {193, 300})
    for (const auto& [name, m] : cheap_zoo<TypeParam>(n)) expect_solved(name, m, serial());
  for (const auto& [name, m] : cheap_zoo<TypeParam>(700)) expect_solved(name, m, threads(2));
}

TYPED_TEST(EighLarge, OnSeveralThreads) {
  for (const std::int64_t n : {512, 1024})
    expect_solved("random", random_matrix<TypeParam>(n, 3, 4), threads(3));
}

/// The solver itself has no smallest size.
TYPED_TEST(EighLarge, SmallOnesToo) {
  using T = TypeParam;
  for (std::int64_t n = 2; n < 70; ++n) {
    const Batch<T> m = random_matrix<T>(n, 0, 5);
    Solved<T> s = solve(m);
    s.status[0] = cpu::eigh_large(n, m.matrix(0), n, EighOrder::descending, s.values.data(),
                                  s.vectors.matrix(0), n, 200, serial());
    EXPECT_EQ(s.status[0], EighStatus::converged);
    EXPECT_LE(worst_probe(m, s), probe_bound<T>(n)) << n;
  }
}

TYPED_TEST(EighLarge, TheOrderOfPiecesDoesNotMatter) {
  const Executor backwards_in_turn = [](std::int64_t count,
                                        const std::function<void(std::int64_t)>& body) {
    for (std::int64_t i = count; i-- > 0;) body(i);
  };
  for (const std::int64_t n : {230, 760}) {
    const Batch<TypeParam> m = random_matrix<TypeParam>(n, 0, 6);
    const Solved<TypeParam> one = solve(m), other = solve(m, backwards_in_turn),
                            several = solve(m, threads(3));
    EXPECT_TRUE(bitwise_equal(one.values, other.values)) << n;
    EXPECT_TRUE(bitwise_equal(one.vectors.data, other.vectors.data)) << n;
    EXPECT_TRUE(bitwise_equal(one.values, several.values)) << n;
    EXPECT_TRUE(bitwise_equal(one.vectors.data, several.vectors.data)) << n;
  }
}

TYPED_TEST(EighLarge, WhatIsNotFiniteGivesNaN) {
  using T = TypeParam;
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()})
    for (const auto& [i, j] : {std::pair{0, 0}, {199, 0}, {130, 129}, {199, 199}}) {
      Batch<T> m = random_matrix<T>(200, 0, 7);
      m(0, i, j) = bad;
      const Solved<T> s = solve(m);
      EXPECT_EQ(s.status[0], EighStatus::not_finite) << i << ", " << j;
      for (const T x : s.values) EXPECT_TRUE(std::isnan(x));
      for (const T x : s.vectors.data) EXPECT_TRUE(std::isnan(x));
    }
  Batch<T> parts(1, 200);  // all parts of one row, one of them not finite
  parts(0, 100, 100) = std::numeric_limits<T>::quiet_NaN();
  EXPECT_EQ(solve(parts).status[0], EighStatus::not_finite);
}

TYPED_TEST(EighLarge, TheFallbackAnswersWhatTheBoundLeaves) {
  const Batch<TypeParam> m = random_matrix<TypeParam>(130, 0, 8);
  Solved<TypeParam> s = solve(m);
  cpu::eigh<TypeParam>(m.view(), s.values.data(), s.vectors.view(), EighOrder::descending,
                       s.status.data(), serial(), cpu::EighLimits{.max_sweeps = 0});
  EXPECT_EQ(s.status[0], EighStatus::by_fallback);
  EXPECT_LE(worst_probe(m, s), probe_bound<TypeParam>(m.n));
}

TYPED_TEST(EighLarge, PartsOfEverySize) {
  using T = TypeParam;
  const std::int64_t n = 420, large = 280;  // rows 0, 3, 6 ... are a small part
  Batch<T> m = random_matrix<T>(n, 0, 9);
  const T factor = std::numeric_limits<T>::epsilon() / 1024;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      if ((i % 3 == 0) != (j % 3 == 0)) m(0, i, j) = 0;
      if (i % 3 == 0 && j % 3 == 0) m(0, i, j) *= factor;
    }
  const Solved<T> s = solve(m, threads(2));
  EXPECT_LE(worst_probe(m, s), probe_bound<T>(n));
  std::int64_t small_vectors = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    bool small = true, other = true;
    for (std::int64_t i = 0; i < n; ++i) (i % 3 == 0 ? other : small) &= s.vectors(0, i, j) == 0;
    EXPECT_TRUE(small || other) << j;
    small_vectors += small;
  }
  EXPECT_EQ(small_vectors, n - large);
}

TYPED_TEST(EighLarge, ProductsOfEveryShape) {
  using T = TypeParam;
  const auto& kernel = cpu::large_kernels<T>();
  std::mt19937 random(1);
  std::uniform_int_distribution<int> digit(-3, 3);  // sums of these are exact
  for (const std::int64_t rows : {0, 1, 5, 6, 13, 29})
    for (const std::int64_t columns : {1, 15, 16, 31, 65})
      for (const std::int64_t depth : {0, 1, 7, 129, 300}) {
        std::vector<T> a(std::size_t(rows * depth)), b(std::size_t(depth * columns)),
            packed(std::size_t(kernel.packed_size(depth, columns)));
        for (T& x : a) x = T(digit(random));
        for (T& x : b) x = T(digit(random));
        std::vector<int> backwards_rows;
        for (std::int64_t k = 0; k < depth; ++k) backwards_rows.push_back(int(depth - 1 - k));
        for (const bool turned : {false, true}) {
          kernel.pack(depth, columns, b.data(), columns, turned ? backwards_rows.data() : nullptr,
                      packed.data());
          for (const cpu::Into into : {cpu::Into::set, cpu::Into::subtract}) {
            const std::int64_t stride = columns + 2;
            std::vector<T> c(std::size_t(rows * stride), T(7));
            kernel.multiply_packed(rows, columns, depth, a.data(), depth, packed.data(), c.data(),
                                   stride, into);
            for (std::int64_t i = 0; i < rows; ++i)
              for (std::int64_t j = 0; j < stride; ++j) {
                T sum = 0;
                for (std::int64_t k = 0; j < columns && k < depth; ++k)
                  sum += a[std::size_t(i * depth + k)] *
                         b[std::size_t((turned ? depth - 1 - k : k) * columns + j)];
                const T expected = j >= columns ? T(7) : into == cpu::Into::set ? sum : T(7) - sum;
                ASSERT_EQ(c[std::size_t(i * stride + j)], expected)
                    << rows << " x " << columns << " x " << depth;
              }
          }
        }
      }
}

}  // namespace
}  // namespace keel::testing
