// Singular values without vectors: the contract of svd.h, and accuracy against the reference and LAPACK.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#ifdef KEEL_HAS_LAPACKE
#include <lapacke.h>
#endif

#include "keel/error.h"
#include "keel/svd.h"
#include "support/rectangles.h"

namespace keel::testing {
namespace {

template <typename T>
class SvdValues : public ::testing::Test {};
using SvdValuesTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SvdValues, SvdValuesTypes);

template <typename T>
struct Values {
  std::vector<T> all;
  std::vector<SvdStatus> status;
};

template <typename T>
Values<T> values_of(const std::vector<Rectangle<T>>& matrices,
                    const Executor& executor = serial()) {
  const std::int64_t batch = std::int64_t(matrices.size()), m = matrices[0].rows,
                     n = matrices[0].columns;
  std::vector<T> numbers;
  for (const auto& matrix : matrices)
    numbers.insert(numbers.end(), matrix.data.begin(), matrix.data.end());
  Values<T> found{std::vector<T>(std::size_t(batch * std::min(m, n)), T(-1)),
                  std::vector<SvdStatus>(std::size_t(batch), SvdStatus(9))};
  cpu::svdvals<T>(contiguous<const T>(numbers.data(), batch, m, n), found.all.data(),
                  found.status.data(), executor);
  return found;
}

/// The largest error, relative to the largest value.
template <typename T>
double value_error(const T* values, const Factors<double>& truth) {
  double error = 0;
  for (std::int64_t j = 0; j < truth.k; ++j)
    error = larger(error, std::abs(double(values[j]) - truth.value(0)[j]));
  return truth.value(0)[0] > 0 ? error / truth.value(0)[0] : error;
}

/// The reference's, of the numbers that are left after rounding to T.
template <typename T>
Factors<double> truth_of(const Rectangle<T>& matrix) {
  Rectangle<double> rounded(matrix.rows, matrix.columns);
  rounded.data = as<double>(matrix.data);
  return decompose_by_reference(rounded);
}

// Square, and so long that QR or sums of pieces come first; in one lane each, alone, and in panels with a remainder.
TYPED_TEST(SvdValues, TheZooInEveryShape) {
  using T = TypeParam;
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1},
                                                                               {1, 5},
                                                                               {7, 1},
                                                                               {2, 2},
                                                                               {3, 3},
                                                                               {5, 3},
                                                                               {3, 60},
                                                                               {9, 9},
                                                                               {17, 33},
                                                                               {32, 32},
                                                                               {65, 40},
                                                                               {300, 9},
                                                                               {72, 72}})
    for (const auto& [name, exact] : rectangle_zoo(m, n)) {
      const Rectangle<T> matrix = as<T>(exact);
      const Factors<double> truth = truth_of(matrix);
      for (const std::size_t batch : {1, 19}) {
        SCOPED_TRACE(name + ", " + std::to_string(m) + " x " + std::to_string(n) + ", batch " +
                     std::to_string(batch));
        const Values<T> found = values_of(std::vector<Rectangle<T>>(batch, matrix));
        const T* const last = found.all.data() + (std::int64_t(batch) - 1) * truth.k;
        EXPECT_EQ(found.status.back(), SvdStatus::converged);
        EXPECT_LE(value_error(last, truth), rounding<T>(truth.k, 1));
        EXPECT_GE(last[truth.k - 1], T(0));
        EXPECT_TRUE(std::is_sorted(last, last + truth.k, std::greater<T>()));
      }
    }
}

#ifdef KEEL_HAS_LAPACKE
template <typename T>
double lapack_error(const Rectangle<T>& a, const Factors<double>& truth) {
  Rectangle<T> copy = a;
  const auto m = lapack_int(a.rows), n = lapack_int(a.columns);
  std::vector<T> values(std::size_t(std::min(m, n))), none(1);
  int failed = 1;
  if constexpr (sizeof(T) == 4)
    failed = LAPACKE_sgesdd(LAPACK_ROW_MAJOR, 'N', m, n, copy.data.data(), n, values.data(),
                            none.data(), m, none.data(), n);
  else
    failed = LAPACKE_dgesdd(LAPACK_ROW_MAJOR, 'N', m, n, copy.data.data(), n, values.data(),
                            none.data(), m, none.data(), n);
  EXPECT_EQ(failed, 0);
  return value_error(values.data(), truth);
}

// Small values are where squares would have lost them, and clusters where a bound on them could be too narrow.
TYPED_TEST(SvdValues, AreAsGoodAsLapacksForEverySpectrum) {
  using T = TypeParam;
  const auto steep = [](std::int64_t m, std::int64_t n, double by_row, double by_column) {
    Rectangle<double> a = random_rectangle(m, n, 9);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        a(i, j) *= std::pow(10, by_row * double(i) / double(m) + by_column * double(j) / double(n));
    return a;
  };
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {12, 12}, {48, 96}, {96, 80}, {500, 20}}) {
    std::vector<NamedRectangle> all = uneven_spectra(m, n);
    const Factors<double> basis =
        decompose(std::vector<Rectangle<double>>{random_rectangle(m, n, 8)});
    all.push_back({"condition 1e20", with_values(basis, [&](std::int64_t i) {
                     return std::pow(10, -20 * double(i) / double(basis.k - 1));
                   })});
    all.push_back({"graded rows", steep(m, n, -12, 0)});
    all.push_back({"graded columns", steep(m, n, 0, -9)});
    all.push_back({"rising", steep(m, n, 6, 6)});
    for (const auto& [name, exact] : all) {
      SCOPED_TRACE(name + ", " + std::to_string(m) + " x " + std::to_string(n));
      const Rectangle<T> matrix = as<T>(exact);
      const Factors<double> truth = truth_of(matrix);
      const Values<T> found = values_of(std::vector<Rectangle<T>>{matrix});
      EXPECT_LE(value_error(found.all.data(), truth), eigh_bound<T>(lapack_error(matrix, truth)));
    }
  }
}
#endif

// Far beyond one panel and one piece, where the executor's threads share the work.
TYPED_TEST(SvdValues, LargeAndLongMatricesByAnyNumberOfThreads) {
  using T = TypeParam;
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {400, 390}, {210, 200}, {60'000, 12}, {7, 100'000}}) {
    const std::vector<Rectangle<T>> matrix{as<T>(random_rectangle(m, n, 5))};
    const Values<T> a = values_of(matrix), b = values_of(matrix, threads(3));
    EXPECT_TRUE(bitwise_equal(a.all, b.all)) << m << " x " << n;
    const Factors<T> both = decompose(matrix);
    for (std::int64_t j = 0; j < both.k; ++j)
      EXPECT_LE(std::abs(a.all[std::size_t(j)] - both.value(0)[j]),
                rounding<T>(both.k, both.value(0)[0]));
  }
}

TYPED_TEST(SvdValues, DependOnNobodyElse) {
  using T = TypeParam;
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {4, 4}, {9, 30}, {16, 16}, {33, 20}, {40, 40}}) {
    std::vector<Rectangle<T>> calm, wild;
    for (std::uint64_t b = 0; b < 21; ++b) calm.push_back(as<T>(random_rectangle(m, n, 30 + b)));
    wild = calm;
    for (const std::size_t b : {1, 7, 20}) {
      wild[b] = as<T>(random_rectangle(m, n, 99));
      wild[b].data[b % std::size_t(m * n)] = b == 1   ? T(1e20)
                                             : b == 7 ? std::numeric_limits<T>::quiet_NaN()
                                                      : -std::numeric_limits<T>::infinity();
    }
    const Values<T> a = values_of(calm), b = values_of(wild), c = values_of(calm, threads(3));
    EXPECT_TRUE(bitwise_equal(a.all, c.all));
    const std::int64_t k = std::min(m, n);
    for (std::int64_t i = 0; i < 21; ++i) {
      const T* const own = b.all.data() + i * k;
      const bool finite = i != 7 && i != 20;
      EXPECT_EQ(b.status[std::size_t(i)], finite ? SvdStatus::converged : SvdStatus::not_finite);
      if (i == 1) continue;
      for (std::int64_t j = 0; j < k; ++j)
        EXPECT_TRUE(finite ? own[j] == a.all[std::size_t(i * k + j)] : std::isnan(own[j]))
            << m << " x " << n << ", " << i;
    }
  }
}

TYPED_TEST(SvdValues, AreFreeOfScale) {
  using T = TypeParam;
  for (const std::int64_t n : {6, 30}) {
    const Rectangle<T> matrix = as<T>(random_rectangle(n + 3, n, 3));
    const Values<T> plain = values_of(std::vector<Rectangle<T>>{matrix});
    for (const int power : {-110, -40, 40, 110}) {
      Rectangle<T> scaled = matrix;
      for (T& x : scaled.data) x = std::ldexp(x, power);
      const Values<T> found = values_of(std::vector<Rectangle<T>>{scaled});
      for (std::size_t i = 0; i < found.all.size(); ++i)
        EXPECT_EQ(found.all[i], std::ldexp(plain.all[i], power));
    }
  }
}

TYPED_TEST(SvdValues, EmptyShapesStridesAndErrors) {
  using T = TypeParam;
  SvdStatus status[2] = {SvdStatus(9), SvdStatus(9)};
  for (const auto& [m, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}, {0, 3}, {4, 0}}) {
    cpu::svdvals<T>(contiguous<const T>(nullptr, 0, m, n), nullptr);
    cpu::svdvals<T>(contiguous<const T>(nullptr, 2, m, n), nullptr, status);
    EXPECT_EQ(status[1], SvdStatus::converged);
  }
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{4, 3}, {3, 40}}) {
    const std::int64_t wide = n + 4;
    const Rectangle<T> matrix = as<T>(random_rectangle(m, n, 17));
    const Values<T> packed = values_of(std::vector<Rectangle<T>>{matrix});
    std::vector<T> in(std::size_t(m * wide), std::numeric_limits<T>::quiet_NaN()), found(3);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) in[std::size_t(i * wide + j)] = matrix(i, j);
    cpu::svdvals<T>({in.data(), 1, m, n, wide, 0}, found.data());
    EXPECT_TRUE(bitwise_equal(found, packed.all));
  }
  const T one = 1;
  T value = 0;
  EXPECT_THROW(cpu::svdvals<T>(contiguous<const T>(&one, 1, 1, 1), nullptr), Error);
  EXPECT_THROW(cpu::svdvals<T>(contiguous<const T>(nullptr, 1, 1, 1), &value), Error);
}

}  // namespace
}  // namespace keel::testing
