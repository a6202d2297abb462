// svd of matrices with many more rows than columns, or columns than rows.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "keel/svd.h"
#include "support/svd_results.h"

namespace keel::testing {
namespace {

template <typename T>
class SvdTall : public ::testing::Test {};
using TallTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SvdTall, TallTypes);

// Quadratic time in the rows would take half an hour here.
TYPED_TEST(SvdTall, AMillionRows) {
  using T = TypeParam;
  const std::int64_t m = 1'000'000;
  Rectangle<T> tall(m, 2);
  long double square = 0;
  for (std::int64_t i = 0; i < m; ++i) {  // from the smallest up; every two rows are orthogonal
    const T size = T(i / 2 + 1) / T(m);
    tall(i, 0) = size;
    tall(i, 1) = i % 2 == 0 ? size : -size;
    square += (long double)(size)*size;
  }
  const auto truth = double(std::sqrt(square));
  const Factors<T> f = decompose(std::vector<Rectangle<T>>{tall});
  EXPECT_EQ(f.status[0], SvdStatus::converged);
  for (const T value : f.values) EXPECT_NEAR(double(value), truth, rounding<T>(2, truth));
}

// Rounding errors of sums over the longer side must not grow with its length.
TYPED_TEST(SvdTall, LongMatricesAreSolvedAsWellAsShortOnes) {
  using T = TypeParam;
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {100'000, 12}, {12, 100'000}, {100'000, 3}}) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
    const Rectangle<T> matrix = as<T>(random_rectangle(m, n, 5));
    const Factors<T> f = decompose(std::vector<Rectangle<T>>{matrix});
    const SvdQuality quality = quality_of(matrix, f.value(0), f.u(0), f.v(0));
    EXPECT_LE(quality.residual, rounding<T>(std::min(m, n), 1));
    EXPECT_LE(quality.orthogonality, rounding<T>(std::min(m, n), 1));
  }
}

// Shapes that are solved by slices of rows, also where most rows are zero.
TYPED_TEST(SvdTall, BySlices) {
  using T = TypeParam;
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{11'000, 3},
                                                                               {3, 11'000},
                                                                               {2'000, 12},
                                                                               {1'100, 33},
                                                                               {33, 1'100},
                                                                               {17'000, 1},
                                                                               {1'100, 64}}) {
    std::vector<NamedRectangle> zoo = rectangle_zoo(m, n);
    const std::int64_t k = std::min(m, n), along = std::max(m, n);
    for (const std::int64_t count : {std::int64_t(1), k, 2 * k + 1}) {
      NamedRectangle sparse{std::to_string(count) + " rows with numbers",
                            random_rectangle(m, n, 6)};
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          const std::int64_t place = (m > n ? i : j) + 7;
          if (place % (along / (count + 1)) != 0) sparse.matrix(i, j) = 0;
        }
      zoo.push_back(sparse);
    }
    NamedRectangle steep{"steep columns", random_rectangle(m, n, 7)};
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        steep.matrix(i, j) *= std::pow(10, -9 * double(m > n ? j : i) / double(k));
    zoo.push_back(steep);
    for (const auto& [name, exact] : zoo) {
      SCOPED_TRACE(name + ", " + std::to_string(m) + " x " + std::to_string(n));
      const std::vector<Rectangle<T>> matrix{as<T>(exact)};
      const Factors<T> f = decompose(matrix), threaded = decompose(matrix, threads(3));
      expect_decomposition(matrix[0], f);
      EXPECT_TRUE(bitwise_equal(f.values, threaded.values) &&
                  bitwise_equal(f.left, threaded.left) && bitwise_equal(f.right, threaded.right));
    }
    const Rectangle<T> matrix = as<T>(steep.matrix);
    Rectangle<double> rounded(m, n);
    rounded.data = as<double>(matrix.data);
    const Factors<double> truth = decompose_by_reference(rounded);
    const Factors<T> f = decompose(std::vector<Rectangle<T>>{matrix});
    std::vector<T> u(std::size_t(m * (k + 2)), T(7)), v(std::size_t(k * (n + 2)), T(7)),
        values(f.values);
    cpu::svd<T>(contiguous(matrix.data.data(), 1, m, n), values.data(),
                {u.data(), 1, m, k, k + 2, 0}, {v.data(), 1, k, n, n + 2, 0});
    for (std::int64_t i = 0; i < m; ++i) {
      EXPECT_TRUE(std::equal(f.u(0) + i * k, f.u(0) + (i + 1) * k, &u[std::size_t(i * (k + 2))]));
      EXPECT_EQ(u[std::size_t(i * (k + 2) + k)], T(7));
    }
    for (std::int64_t i = 0; i < k; ++i) {
      EXPECT_TRUE(std::equal(f.v(0) + i * n, f.v(0) + (i + 1) * n, &v[std::size_t(i * (n + 2))]));
      EXPECT_EQ(v[std::size_t(i * (n + 2) + n)], T(7));
    }
    for (std::int64_t j = 0; j < k; ++j)  // from 64 on errors are relative to the largest value
      EXPECT_NEAR(double(f.value(0)[j]), truth.value(0)[j],
                  rounding<T>(k, truth.value(0)[k < 64 ? j : 0]));
    std::vector<Rectangle<T>> batch(2, as<T>(random_rectangle(m, n, 8)));
    batch[0](m - 1, n - 1) = std::numeric_limits<T>::infinity();
    const Factors<T> two = decompose(batch);
    EXPECT_EQ(two.status[0], SvdStatus::not_finite);
    EXPECT_EQ(two.status[1], SvdStatus::converged);
    expect_decomposition(batch[1], two, 1);
  }
}

}  // namespace
}  // namespace keel::testing
