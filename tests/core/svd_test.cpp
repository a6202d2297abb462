// Singular values and vectors: the contract of svd.h, and accuracy against LAPACK.

#include "keel/svd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#ifdef KEEL_HAS_LAPACKE
#include <lapacke.h>
#endif

#include "cpu/kernels.h"
#include "cpu/scratch.h"
#include "keel/eigh.h"
#include "keel/error.h"
#include "support/svd_results.h"

namespace keel::testing {
namespace {

template <typename T>
class Svd : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Svd, Types);

const std::vector<std::pair<std::int64_t, std::int64_t>> kShapes = {
    {1, 1}, {1, 5}, {7, 1},  {2, 2},  {3, 3},   {4, 4},   {5, 3},   {3, 5},
    {8, 8}, {9, 9}, {60, 3}, {3, 60}, {17, 33}, {32, 32}, {65, 40}, {72, 72}};

// Alone, and in packs with some empty lanes.
TYPED_TEST(Svd, TheZooInEveryShape) {
  using T = TypeParam;
  for (const auto& [m, n] : kShapes)
    for (const auto& [name, exact] : rectangle_zoo(m, n)) {
      const Rectangle<T> matrix = as<T>(exact);
      for (const std::size_t batch : {1, 19}) {
        SCOPED_TRACE(name + ", " + std::to_string(m) + " x " + std::to_string(n) + ", batch " +
                     std::to_string(batch));
        const Factors<T> f = decompose(std::vector<Rectangle<T>>(batch, matrix));
        expect_decomposition(matrix, f, std::int64_t(batch) - 1);
      }
    }
}

TYPED_TEST(Svd, ValuesAreTheReferences) {
  using T = TypeParam;
  for (const auto& [m, n] : kShapes)
    for (const auto& [name, exact] : rectangle_zoo(m, n)) {
      const Rectangle<T> matrix = as<T>(exact);
      Rectangle<double> rounded(m, n);
      rounded.data = as<double>(matrix.data);
      const Factors<double> truth = decompose_by_reference(rounded);
      const Factors<T> f = decompose(std::vector<Rectangle<T>>{matrix});
      for (std::int64_t j = 0; j < f.k; ++j)
        EXPECT_LE(std::abs(f.value(0)[j] - truth.value(0)[j]),
                  rounding<T>(std::max(m, n), truth.value(0)[0]))
            << name << ", " << m << " x " << n << ", value " << j;
    }
}

#ifdef KEEL_HAS_LAPACKE
template <typename T>
SvdQuality lapack_quality(const Rectangle<T>& a) {
  const auto m = lapack_int(a.rows), n = lapack_int(a.columns), k = std::min(m, n);
  Rectangle<T> copy = a;
  Factors<T> f(1, m, n);
  int failed = 1;
  if constexpr (sizeof(T) == 4)
    failed = LAPACKE_sgesdd(LAPACK_ROW_MAJOR, 'S', m, n, copy.data.data(), n, f.values.data(),
                            f.left.data(), k, f.right.data(), n);
  else
    failed = LAPACKE_dgesdd(LAPACK_ROW_MAJOR, 'S', m, n, copy.data.data(), n, f.values.data(),
                            f.left.data(), k, f.right.data(), n);
  EXPECT_EQ(failed, 0);
  return quality_of(a, f.value(0), f.u(0), f.v(0));
}

TYPED_TEST(Svd, IsAsGoodAsLapack) {
  using T = TypeParam;
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {3, 3}, {8, 8}, {60, 3}, {32, 32}, {64, 64}, {100, 60}, {128, 128}}) {
    const Rectangle<T> matrix = as<T>(random_rectangle(m, n, 7));
    const SvdQuality theirs = lapack_quality(matrix);
    for (const std::size_t batch : {1, 17}) {
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
      const Factors<T> f = decompose(std::vector<Rectangle<T>>(batch, matrix));
      const SvdQuality ours = quality_of(matrix, f.value(0), f.u(0), f.v(0));
      EXPECT_LE(ours.residual, eigh_bound<T>(theirs.residual));
      EXPECT_LE(ours.orthogonality, eigh_bound<T>(theirs.orthogonality));
    }
  }
}

// A^T A loses the directions of small values, all at once or one after another.
TYPED_TEST(Svd, IllConditionedMatricesAreSolvedAsWellAsByLapack) {
  using T = TypeParam;
  const std::vector<std::pair<const char*, std::function<double(double)>>> spectra{
      {"condition 1e3", [](double at) { return std::pow(10, -3 * at); }},
      {"condition 1e7", [](double at) { return std::pow(10, -7 * at); }},
      {"condition 1e18", [](double at) { return std::pow(10, -18 * at); }},
      {"a quarter of the rank", [](double at) { return at < 0.25 ? 1 + at : 0; }},
      {"two plateaus", [](double at) { return at < 0.4 ? 1 + 0.1 * at : 1e-5 * (1 + at); }},
      {"equal and small", [](double at) { return at < 0.5 ? 1 : 1e-6; }}};
  for (const auto& [m, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{13, 13}, {24, 24}, {33, 90}, {70, 64}}) {
    const Factors<double> basis = decompose_by_reference(random_rectangle(m, n, 8));
    for (const auto& [name, value] : spectra) {
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + ", " + name);
      const double last = double(basis.k - 1);
      // clang 14 cannot capture a structured binding by its own name.
      const Rectangle<T> matrix = as<T>(
          with_values(basis, [&, &at = value](std::int64_t i) { return at(double(i) / last); }));
      const SvdQuality theirs = lapack_quality(matrix);
      for (const std::size_t batch : {1, 17}) {
        const Factors<T> f = decompose(std::vector<Rectangle<T>>(batch, matrix));
        const SvdQuality ours = quality_of(matrix, f.value(0), f.u(0), f.v(0));
        EXPECT_LE(ours.residual, eigh_bound<T>(theirs.residual));
        EXPECT_LE(ours.orthogonality, eigh_bound<T>(theirs.orthogonality));
      }
    }
  }
}
#endif

TYPED_TEST(Svd, SmallValuesOfSteepMatricesHaveTheirDigits) {
  using T = TypeParam;
  const double step = sizeof(T) == 4 ? 0.05 : 1e-3;
  for (const std::int64_t n : {4, 8, 12})
    for (const std::size_t batch : {1, 20})
      expect_digits_where_steep<T>(n + 3, n, step, [&](const Rectangle<T>& matrix) {
        return decompose(std::vector<Rectangle<T>>(batch, matrix));
      });
  // So many columns that they are turned by eigenvectors, in several steps.
  for (const std::int64_t n : {24, 40})
    expect_digits_where_steep<T>(
        n + 3, n, sizeof(T) == 4 ? 0.55 : 5e-3,
        [&](const Rectangle<T>& matrix) { return decompose(std::vector<Rectangle<T>>{matrix}); });
}

#ifdef KEEL_HAS_LAPACKE
// Where A^T A alone does not suffice, and Jacobi alone would take many sweeps.
TYPED_TEST(Svd, SteepAndClusteredMatricesAreSolvedAsWellAsByLapack) {
  using T = TypeParam;
  const std::int64_t n = 96;
  const Factors<double> basis = decompose_by_reference(random_rectangle(n, n, 8));
  const Rectangle<double> any = random_rectangle(n, n, 9);
  const auto made = [&](const std::function<double(std::int64_t, std::int64_t)>& factor) {
    Rectangle<double> a = any;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) a(i, j) *= factor(i, j);
    return a;
  };
  const std::vector<std::pair<const char*, Rectangle<double>>> all{
      {"graded rows",
       made([](std::int64_t i, std::int64_t) { return std::pow(10, -12 * double(i) / 95); })},
      {"graded columns",
       made([](std::int64_t, std::int64_t j) { return std::pow(10, -9 * double(j) / 95); })},
      {"one dominant value",
       with_values(basis, [](std::int64_t i) { return i == 0 ? 1e3 : 1 - double(i) / 200; })},
      {"squares", with_values(basis, [](std::int64_t i) { return std::pow(double(1 + i), -2); })},
      {"upper triangular", made([](std::int64_t i, std::int64_t j) { return j < i ? 0 : 1; })},
      {"bidiagonal",
       made([](std::int64_t i, std::int64_t j) { return j == i || j == i + 1 ? 1 : 0; })},
      {"an eighth of the rows small",
       made([](std::int64_t i, std::int64_t) { return i % 8 == 0 ? 1.0 / 30 : 1; })},
      {"clusters",
       with_values(basis, [](std::int64_t i) { return double(1 + i / 24) + 1e-12 * double(i); })}};
  for (const auto& [name, exact] : all) {
    SCOPED_TRACE(name);
    const Rectangle<T> matrix = as<T>(exact);
    const SvdQuality theirs = lapack_quality(matrix);
    const Factors<T> f = decompose(std::vector<Rectangle<T>>{matrix});
    const SvdQuality ours = quality_of(matrix, f.value(0), f.u(0), f.v(0));
    EXPECT_LE(ours.residual, eigh_bound<T>(theirs.residual));
    EXPECT_LE(ours.orthogonality, eigh_bound<T>(theirs.orthogonality));
  }
}

// By divide and conquer, whatever the spectrum: what it sets aside, and what rounding leaves of a null vector.
TYPED_TEST(Svd, LargerMatricesOfEverySpectrumAreSolvedAsWellAsByLapack) {
  using T = TypeParam;
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {64, 64}, {70, 120}, {130, 129}, {200, 66}, {300, 64}}) {
    std::vector<NamedRectangle> all = uneven_spectra(m, n);
    for (const NamedRectangle& each : rectangle_zoo(m, n)) all.push_back(each);
    const auto made = [&](const char* name, const std::function<double(double, double)>& factor) {
      all.push_back({name, random_rectangle(m, n, 9)});
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          all.back().matrix(i, j) *= factor(double(i) / double(m), double(j) / double(n));
    };
    made("graded rows", [](double i, double) { return std::pow(10, -12 * i); });
    made("rising columns", [](double, double j) { return std::pow(10, 9 * j); });
    made("steep", [](double i, double j) { return std::pow(10, -30 * (i + j)); });
    made("upper triangular", [](double i, double j) { return i > j ? 0 : 1; });
    made("zeros at the end", [](double i, double j) { return i > 0.6 || j > 0.9 ? 0 : 1; });
    made("blocks", [](double i, double j) { return int(4 * i) == int(4 * j) ? 1 : 0; });
    for (const auto& [name, exact] : all) {
      SCOPED_TRACE(name + ", " + std::to_string(m) + " x " + std::to_string(n));
      const Rectangle<T> matrix = as<T>(exact);
      const Factors<T> f = decompose(std::vector<Rectangle<T>>{matrix});
      expect_decomposition(matrix, f);
      if (name == "ones")
        continue;  // its equal entries round in the same direction, or not, as it happens
      const SvdQuality theirs = lapack_quality(matrix),
                       ours = quality_of(matrix, f.value(0), f.u(0), f.v(0));
      EXPECT_LE(ours.residual, eigh_bound<T>(theirs.residual));
      EXPECT_LE(ours.orthogonality, eigh_bound<T>(theirs.orthogonality));
    }
  }
}

#endif

TYPED_TEST(Svd, DiagonalMatricesAreExact) {
  using T = TypeParam;
  for (const auto& [m, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{5, 5}, {20, 7}, {7, 30}, {70, 70}})
    for (const std::size_t batch : {1, 20}) {
      Rectangle<T> matrix(m, n);
      const std::int64_t k = std::min(m, n);
      for (std::int64_t i = 0; i < k; ++i) matrix(i, i) = T(i % 2 == 0 ? 3 - i : i / 2);
      const Factors<T> f = decompose(std::vector<Rectangle<T>>(batch, matrix));
      expect_decomposition(matrix, f, std::int64_t(batch) - 1);
      const SvdQuality quality = quality_of(matrix, f.value(0), f.u(0), f.v(0));
      EXPECT_EQ(quality.residual, 0);
      EXPECT_EQ(quality.orthogonality, 0);
      matrix(1, 1) = std::numeric_limits<T>::infinity();
      const Factors<T> none = decompose(std::vector<Rectangle<T>>(batch, matrix));
      EXPECT_EQ(none.status[0], SvdStatus::not_finite);
      EXPECT_TRUE(std::isnan(none.value(0)[0]) && std::isnan(none.u(0)[0]));
    }
}

// A sum of 20,000 equal terms, one after the other, rounds in the same direction each time: by up to 10,000 epsilons (1,800
// and 6,800 came out). It is added up in 79 pieces of 256, which makes 335 / 2. A column's length is taken from such a sum
// twice.
TYPED_TEST(Svd, LongColumnsAreAsOrthogonalAsShortOnes) {
  using T = TypeParam;
  for (const bool wide : {false, true}) {
    Rectangle<T> matrix(wide ? 16 : 20000, wide ? 20000 : 16);
    for (std::int64_t i = 0; i < matrix.rows; ++i)
      for (std::int64_t j = 0; j < matrix.columns; ++j) matrix(i, j) = T(std::min(i, j) + 1) / 300;
    const Factors<T> f = decompose(std::vector<Rectangle<T>>{matrix});
    EXPECT_LE(quality_of(matrix, f.value(0), f.u(0), f.v(0)).orthogonality, 335 * kEps<T>);
  }
}

TYPED_TEST(Svd, ResultsDependOnNobodyElse) {
  using T = TypeParam;
  for (const auto& [m, n] : kShapes) {
    std::vector<Rectangle<T>> calm, wild;
    for (std::uint64_t b = 0; b < 21; ++b) calm.push_back(as<T>(random_rectangle(m, n, 30 + b)));
    wild = calm;
    for (const std::size_t b : {1, 7, 20}) {
      wild[b] = as<T>(random_rectangle(m, n, 99));
      wild[b].data[0] = b == 7 ? std::numeric_limits<T>::quiet_NaN() : T(1e20);
    }
    const Factors<T> a = decompose(calm), b = decompose(wild), c = decompose(calm, threads(3));
    EXPECT_TRUE(bitwise_equal(a.values, c.values) && bitwise_equal(a.left, c.left) &&
                bitwise_equal(a.right, c.right));
    for (std::int64_t i = 0; i < 21; ++i) {
      if (i == 1 || i == 7 || i == 20) continue;
      EXPECT_TRUE(bitwise_equal(a.value(i), b.value(i), a.k) &&
                  bitwise_equal(a.u(i), b.u(i), m * a.k) && bitwise_equal(a.v(i), b.v(i), a.k * n))
          << m << " x " << n << ", " << i;
    }
    EXPECT_EQ(b.status[7], SvdStatus::not_finite);
    for (const T* x : {b.value(7), b.u(7), b.v(7)}) EXPECT_TRUE(std::isnan(*x));
  }
}

// Large enough for several threads, by each way.
TYPED_TEST(Svd, ThreadsDoNotChangeOneLargeMatrix) {
  using T = TypeParam;
  for (const auto& [m, n, step] : std::vector<std::tuple<std::int64_t, std::int64_t, double>>{
           {410, 400, 1}, {420, 200, 1}, {210, 200, 0.96}, {3000, 66, 1}}) {
    Rectangle<double> exact = random_rectangle(m, n, 5);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) exact(i, j) *= std::pow(step, double(j));
    const std::vector<Rectangle<T>> matrix{as<T>(exact)};
    const Factors<T> a = decompose(matrix), b = decompose(matrix, threads(3));
    EXPECT_TRUE(bitwise_equal(a.values, b.values) && bitwise_equal(a.left, b.left) &&
                bitwise_equal(a.right, b.right));
    expect_decomposition(matrix[0], b, 0);
  }
}

TYPED_TEST(Svd, IsFreeOfScale) {
  using T = TypeParam;
  const Rectangle<T> matrix = as<T>(random_rectangle(9, 6, 3));
  const Factors<T> plain = decompose(std::vector<Rectangle<T>>(5, matrix));
  for (const int power : {-120, -40, 40, 120}) {
    Rectangle<T> scaled = matrix;
    for (T& x : scaled.data) x = std::ldexp(x, power);
    const Factors<T> f = decompose(std::vector<Rectangle<T>>(5, scaled));
    EXPECT_TRUE(bitwise_equal(f.left, plain.left) && bitwise_equal(f.right, plain.right)) << power;
    for (std::size_t i = 0; i < f.values.size(); ++i)
      EXPECT_EQ(f.values[i], std::ldexp(plain.values[i], power));
  }
}

TYPED_TEST(Svd, WhatIsTooSteepForTheTypeIsSolvedByAWiderOne) {
  using T = TypeParam;
  const double tiny = sizeof(T) == 4 ? 1e-30 : 1e-200;
  Rectangle<T> matrix = as<T>(random_rectangle(5, 4, 13));
  for (std::int64_t i = 0; i < 5; ++i) matrix(i, 2) *= T(tiny);
  for (const std::size_t batch : {1, 18}) {
    const Factors<T> f = decompose(std::vector<Rectangle<T>>(batch, matrix));
    EXPECT_EQ(f.status[0], SvdStatus::by_fallback);
    const SvdQuality quality = quality_of(matrix, f.value(0), f.u(0), f.v(0));
    EXPECT_LE(quality.residual, rounding<T>(5, 1));
    EXPECT_LE(quality.orthogonality, rounding<T>(5, 1));
    EXPECT_GT(f.value(0)[3], T(0));
    EXPECT_LT(f.value(0)[3], T(100 * tiny));
  }
}

// The first three columns are dependent, but no two of them: what is left of one shrinks with every
// rotation and never vanishes at once. The last entry is so small that only the reference solves it.
TYPED_TEST(Svd, DependentColumnsOfSteepMatricesHaveOrthogonalVectors) {
  using T = TypeParam;
  const double unit = sizeof(T) == 4 ? 1e37 : 1, tiny = sizeof(T) == 4 ? 1e-40 : 1e-140;
  Rectangle<double> exact(4, 4);
  exact.data = {0, 0, 0, 0, 3, -1, 2, 0, 3, -3, 0, 0, 0, 0, 0, tiny / unit};
  for (double& x : exact.data) x *= unit;
  const Rectangle<T> matrix = as<T>(exact);
  const Factors<T> f = decompose(std::vector<Rectangle<T>>{matrix});
  EXPECT_EQ(f.status[0], SvdStatus::by_fallback);
  const SvdQuality quality = quality_of(matrix, f.value(0), f.u(0), f.v(0));
  EXPECT_LE(quality.residual, rounding<T>(4, 1));
  EXPECT_LE(quality.orthogonality, rounding<T>(4, 1));
  EXPECT_EQ(f.value(0)[2], T(tiny));
  EXPECT_EQ(f.value(0)[3], T(0));
}

void in_turn(const Executor& executor, std::int64_t pieces, void (*body)(const void*, std::int64_t),
             const void* data) {
  executor(pieces, [&](std::int64_t piece) { body(data, piece); });
}

template <typename T>
bool no_eigh(const Executor&, std::int64_t, const T*, T*, std::int64_t) {
  return false;
}

template <typename T>
bool with_eigh(const Executor&, std::int64_t n, const T* matrix, T* vectors, std::int64_t stride) {
  std::vector<T> values(std::size_t(n), 0);
  cpu::eigh<T>({matrix, 1, n, stride, 0}, values.data(), {vectors, 1, n, stride, 0},
               EighOrder::descending);
  return true;
}

struct LowRank {
  const char* name;
  int sweeps;
  std::function<double(double, double, double)> entry;  ///< of i / n, j / n and a random number
};

// On their noise, Jacobi's method would take two to thirty times as many sweeps, or not converge at all.
TYPED_TEST(Svd, JacobiNeedsFewSweepsWhereTheRankIsLow) {
  using T = TypeParam;
  const cpu::Kernels<T>& kernel = cpu::kernels<T>();
  const std::int64_t n = 80, first = 0;
  const Executor executor = serial();
  for (const LowRank& low : std::vector<LowRank>{
           {"ones", 1, [](double, double, double) { return 1.0; }},
           {"rank one", 1, [](double x, double y, double) { return std::sin(9 * x) * (1 + y); }},
           {"a triangle", 9, [](double x, double y, double any) { return x <= y ? any : 0; }},
           {"Hilbert's", 6, [](double x, double y, double) { return 1 / (80 * (x + y) + 1); }},
           {"a smooth kernel", 8,
            [](double x, double y, double) { return std::exp(-100 * (x - y) * (x - y)); }}}) {
    Rectangle<double> exact = random_rectangle(n, n, 3);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        exact(i, j) = low.entry(double(i) / double(n), double(j) / double(n), exact(i, j));
    const Rectangle<T> matrix = as<T>(exact);
    Factors<T> f(1, n, n);
    cpu::Scratch<T> scratch(kernel.svd_alone_scratch(n, n));
    kernel.svd_alone(&first, 1, contiguous<const T>(matrix.data.data(), 1, n, n), f.values.data(),
                     contiguous(f.left.data(), 1, n, n), contiguous(f.right.data(), 1, n, n),
                     f.status.data(), low.sweeps, {&executor, no_eigh<T>, in_turn}, scratch);
    EXPECT_EQ(f.status[0], SvdStatus::converged) << low.name;
    SCOPED_TRACE(low.name);
    const Factors<T> whole = decompose(std::vector<Rectangle<T>>{matrix});
    expect_decomposition(matrix, whole, 0);
  }
}

/// Whether the eigenvectors of A^T A lead to the singular values of a matrix, so that Jacobi is not needed. Without
/// `again`, also whether no short columns are turned again.
template <typename T>
bool needs_no_jacobi(const Rectangle<T>& a, bool again = true) {
  const cpu::Kernels<T>& kernel = cpu::kernels<T>();
  const std::int64_t n = std::min(a.rows, a.columns);
  const auto matrix = contiguous<const T>(a.data.data(), 1, a.rows, a.columns);
  Factors<T> f(1, a.rows, a.columns);
  std::vector<T> square(std::size_t(n * n)), vectors(square);
  cpu::Scratch<T> scratch(kernel.svd_polish_scratch(a.rows, a.columns));
  int exponent = 0;
  const Executor executor = serial();
  const cpu::Helpers<T> helpers{&executor, again ? with_eigh<T> : no_eigh<T>, in_turn};
  if (!kernel.svd_square(0, matrix, exponent, square.data(), helpers, scratch)) return false;
  cpu::eigh<T>(contiguous<const T>(square.data(), 1, n), f.values.data(),
               contiguous(vectors.data(), 1, n), EighOrder::descending);
  return kernel.svd_polish(0, matrix, exponent, vectors.data(), helpers, f.values.data(),
                           contiguous(f.left.data(), 1, a.rows, n),
                           contiguous(f.right.data(), 1, n, a.columns), scratch);
}

// Within clusters no angle is small, and Jacobi takes many sweeps on what is only rounding.
TYPED_TEST(Svd, ClustersAreTurnedByTheirOwnEigenvectors) {
  using T = TypeParam;
  const std::int64_t n = 160, first = 0;
  const double width = std::numeric_limits<T>::epsilon() * 8;
  const Factors<double> basis = decompose_by_reference(random_rectangle(n, n, 8));
  const std::vector<std::pair<const char*, std::function<double(double)>>> spectra{
      {"two", [=](double i) { return (i < 80 ? 1 : 1e-3) * (1 + width * i / n); }},
      {"five", [=](double i) { return std::pow(10, -std::floor(i / 32)) * (1 + width * i / n); }},
      {"one of equal and small ones", [](double i) { return i == 0 ? 1 : 1e-3; }},
      {"one of similar and small ones",
       [=](double i) { return i < 40 ? 1 + i / n : 1e-4 * (1 + 1e-3 * i / n); }}};
  for (const auto& [name, value] : spectra) {
    SCOPED_TRACE(name);
    const Rectangle<T> matrix =
        as<T>(with_values(basis, [&at = value](std::int64_t i) { return at(double(i)); }));
    Factors<T> f(1, n, n);
    const cpu::Kernels<T>& kernel = cpu::kernels<T>();
    cpu::Scratch<T> scratch(kernel.svd_alone_scratch(n, n));
    const Executor executor = serial();
    kernel.svd_alone(&first, 1, contiguous<const T>(matrix.data.data(), 1, n, n), f.values.data(),
                     contiguous(f.left.data(), 1, n, n), contiguous(f.right.data(), 1, n, n),
                     f.status.data(), 1, {&executor, with_eigh<T>, in_turn}, scratch);
    EXPECT_EQ(f.status[0], SvdStatus::converged);
    const Factors<T> whole = decompose(std::vector<Rectangle<T>>{matrix});
    expect_decomposition(matrix, whole, 0);
  }
}

// Rounding decides which of two equal entries is the largest, and must do so before signs are set.
TYPED_TEST(Svd, SignsFollowTheFirstOfEqualEntries) {
  using T = TypeParam;
  for (std::int64_t n = 12; n < 40; ++n) {
    Rectangle<T> decay(n, n), powers(n, n);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        decay(i, j) = T(std::pow(0.9, std::abs(double(i - j))));
        powers(i, j) = T(std::pow(2 * double(i) / double(n - 1) - 1, double(j)));
      }
    for (const Rectangle<T>& matrix : {decay, powers})
      expect_decomposition(matrix, decompose(std::vector<Rectangle<T>>{matrix}), 0);
    for (std::int64_t i = 1; i < n; ++i) decay(0, i) = decay(i, 0) = 0;
    decay(0, 0) = T(sizeof(T) == 4 ? 1e-30 : 1e-200);  // too small for this type
    Factors<T> f = decompose(std::vector<Rectangle<T>>{decay});
    EXPECT_EQ(f.status[0], SvdStatus::by_fallback);
    f.status[0] = SvdStatus::converged;
    expect_decomposition(decay, f, 0);
  }
}

// Of equal rows, the noise has a low rank too, and so has its noise. Divide and conquer leaves it at its own size.
TYPED_TEST(Svd, NoiseBeyondALowRankIsZeroOrSmall) {
  using T = TypeParam;
  for (const auto& [m, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{40, 40}, {90, 30}, {30, 90}, {160, 160}})
    for (const std::int64_t rank : {1, 2, 4}) {
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + ", rank " +
                   std::to_string(rank));
      const Rectangle<double> block = random_rectangle(rank, rank, 31);
      Rectangle<double> exact = random_rectangle(m, n, 31);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          exact(i, j) = rank == 1 ? 1 : block(i * rank / m, j * rank / n);
      const Rectangle<T> matrix = as<T>(exact);
      EXPECT_TRUE(needs_no_jacobi(matrix, false));
      const Factors<T> f = decompose(std::vector<Rectangle<T>>{matrix});
      expect_decomposition(matrix, f, 0);
      const double noise = f.k < 64 ? 0 : rounding<T>(f.k, double(f.value(0)[0]));
      EXPECT_LE(double(f.value(0)[rank]), noise);
    }
}

// Some vectors of zero values are completed one by one, many together.
TYPED_TEST(Svd, DeadRowsAndColumnsAreSolvedLikeOthers) {
  using T = TypeParam;
  for (const auto& [m, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{40, 40}, {50, 30}, {30, 50}, {72, 72}})
    for (const std::int64_t dead : {1, 3, 12, 29})
      for (const int which : {1, 2, 3}) {  // rows, columns, both
        SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + ", " + std::to_string(dead) +
                     (which == 1   ? " rows"
                      : which == 2 ? " columns"
                                   : " of both"));
        Rectangle<double> exact = random_rectangle(m, n, 23);
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            if ((which % 2 == 1 && i < dead) || (which / 2 == 1 && j < dead)) exact(i, j) = 0;
        const Rectangle<T> matrix = as<T>(exact);
        EXPECT_TRUE(needs_no_jacobi(matrix));
        const Factors<T> f = decompose(std::vector<Rectangle<T>>{matrix});
        expect_decomposition(matrix, f, 0);
        for (std::int64_t i = 0; i < m * n; ++i) exact.data[i] = double(matrix.data[i]);
        const Factors<double> truth = decompose_by_reference(exact);
        for (std::int64_t j = 0; j < f.k; ++j)
          EXPECT_LE(std::abs(double(f.value(0)[j]) - truth.value(0)[j]),
                    rounding<T>(std::max(m, n), truth.value(0)[0]))
              << j;
      }
}

TYPED_TEST(Svd, EmptyShapesStridesAndErrors) {
  using T = TypeParam;
  for (const auto& [m, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}, {0, 3}, {4, 0}})
    for (const std::int64_t batch : {0, 2}) {
      Factors<T> f(batch, m, n);
      cpu::svd<T>(contiguous<const T>(nullptr, batch, m, n), f.values.data(),
                  contiguous(f.left.data(), batch, m, f.k),
                  contiguous(f.right.data(), batch, f.k, n));
    }
  const std::int64_t m = 4, n = 3, wide = 7;
  const Rectangle<T> matrix = as<T>(random_rectangle(m, n, 17));
  const Factors<T> packed = decompose(std::vector<Rectangle<T>>{matrix});
  std::vector<T> in(std::size_t(m * wide), std::numeric_limits<T>::quiet_NaN()), u(in), v(in), s(3);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) in[std::size_t(i * wide + j)] = matrix(i, j);
  cpu::svd<T>({in.data(), 1, m, n, wide, 0}, s.data(), {u.data(), 1, m, n, wide, 0},
              {v.data(), 1, n, n, wide, 0});
  EXPECT_TRUE(bitwise_equal(s, packed.values));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < wide; ++j) {
      const T own = u[std::size_t(i * wide + j)];
      EXPECT_TRUE(j < n ? own == packed.left[std::size_t(i * n + j)] : std::isnan(own));
      const T right = v[std::size_t(i * wide + j)];
      EXPECT_TRUE(i < n && j < n ? right == packed.right[std::size_t(i * n + j)]
                                 : std::isnan(right));
    }
  EXPECT_THROW(cpu::svd<T>(contiguous<const T>(in.data(), 1, 4, 3), s.data(),
                           contiguous(u.data(), 1, 4, 4), contiguous(v.data(), 1, 3, 3)),
               Error);
}

}  // namespace
}  // namespace keel::testing
