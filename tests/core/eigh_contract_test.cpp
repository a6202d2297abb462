// Tests the contract in keel/eigh.h, sentence by sentence.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "cpu/eigh_limits.h"
#include "keel/error.h"
#include "support/eigen_quality.h"
#include "support/solve.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
class EighContract : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(EighContract, Types);

template <typename T>
void expect_right(const Batch<T>& m, const Solved<T>& s) {
  for (std::int64_t b = 0; b < m.batch; ++b) {
    const T* values = s.values.data() + b * m.n;
    const EigenQuality quality = eigen_quality(m.n, m.matrix(b), values, s.vectors.matrix(b));
    ASSERT_LE(quality.residual, rounding<T>(m.n, 1)) << "matrix " << b;
    ASSERT_LE(quality.orthogonality, rounding<T>(m.n, 1)) << "matrix " << b;
  }
}

template <typename T>
void expect_ordered_and_signed(const Batch<T>& m, const Solved<T>& s) {
  for (std::int64_t b = 0; b < m.batch; ++b)
    for (std::int64_t j = 0; j < m.n; ++j) {
      if (j > 0) {
        ASSERT_GE(s.values[std::size_t(b * m.n + j - 1)], s.values[std::size_t(b * m.n + j)]);
      }
      T peak = 0;
      for (std::int64_t i = 0; i < m.n; ++i)
        if (std::abs(s.vectors(b, i, j)) > std::abs(peak)) peak = s.vectors(b, i, j);
      ASSERT_GT(peak, 0) << "matrix " << b << ", vector " << j;
    }
}

TYPED_TEST(EighContract, EverySizeAndBatch) {
  for (const std::int64_t n : {0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33})
    for (const std::int64_t batch : {0, 1, 2, 3, 5, 16, 17, 33}) {
      SCOPED_TRACE("n = " + std::to_string(n) + ", batch = " + std::to_string(batch));
      const Batch<TypeParam> m = as<TypeParam>(random_symmetric(batch, n, 7));
      const Solved<TypeParam> s = solve(m);
      expect_right(m, s);
      expect_ordered_and_signed(m, s);
      for (const EighStatus status : s.status) EXPECT_EQ(status, EighStatus::converged);
    }
  for (const std::int64_t n : {63, 64, 65, 127, 128, 129})
    for (const std::int64_t batch : {1, 9}) {
      SCOPED_TRACE("n = " + std::to_string(n) + ", batch = " + std::to_string(batch));
      const Batch<TypeParam> m = as<TypeParam>(random_symmetric(batch, n, 7));
      const Solved<TypeParam> s = solve(m);
      expect_right(m, s);
      expect_ordered_and_signed(m, s);
    }
}

TYPED_TEST(EighContract, TheZooInOneBatch) {
  for (const std::int64_t n : {1, 2, 4, 9, 32}) {
    const auto zoo = spectrum_zoo<TypeParam>(n);
    Batch<TypeParam> m(std::int64_t(zoo.size()), n);
    for (std::size_t b = 0; b < zoo.size(); ++b) m.set(std::int64_t(b), zoo[b].matrix.matrix(0));
    const Solved<TypeParam> s = solve(m);
    expect_ordered_and_signed(m, s);
    for (std::size_t b = 0; b < zoo.size(); ++b) {
      SCOPED_TRACE(zoo[b].name + ", n = " + std::to_string(n));
      const Solved<TypeParam> alone = solve(zoo[b].matrix);
      for (const auto* result : {&s, &alone}) {
        const std::int64_t at = result == &s ? std::int64_t(b) : 0;
        const EigenQuality quality = eigen_quality(
            n, zoo[b].matrix.matrix(0), result->values.data() + at * n, result->vectors.matrix(at));
        EXPECT_LE(quality.orthogonality, rounding<TypeParam>(n, 1));
        const double floor = zoo[b].name == "denormal" ? 1.0 / 32 : 0;
        EXPECT_LE(quality.residual, rounding<TypeParam>(n, 1) + floor);
      }
    }
  }
}

TYPED_TEST(EighContract, AscendingIsDescendingBackwards) {
  for (const std::int64_t n : {1, 2, 3, 8, 32, 97, 150})
    for (const std::int64_t batch : {1, 17}) {
      Batch<TypeParam> m = as<TypeParam>(random_symmetric(batch, n, 21));
      if (n > 2) m.set(0, spectrum_zoo<TypeParam>(n).back().matrix.matrix(0));
      const Solved<TypeParam> down = backwards(solve(m)),
                              up = solve(m, serial(), EighOrder::ascending);
      EXPECT_TRUE(bitwise_equal(down.values, up.values)) << n;
      EXPECT_TRUE(bitwise_equal(down.vectors.data, up.vectors.data)) << n;
    }
  // Solved by parts, by the fallback and by the reference.
  Batch<TypeParam> parts(1, 4);
  parts(0, 0, 0) = parts(0, 2, 2) = 2;
  parts(0, 2, 0) = 1;
  parts(0, 1, 1) = -1;
  const std::vector<TypeParam> by_parts = solve(parts, serial(), EighOrder::ascending).values;
  const TypeParam expected[] = {-1, 0, 1, 3};
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(by_parts[i], expected[i], rounding<TypeParam>(4, 3));
  Solved<TypeParam> s = solve(parts);
  cpu::eigh<TypeParam>(parts.view(), s.values.data(), s.vectors.view(), EighOrder::ascending,
                       nullptr, serial(), cpu::EighLimits{.max_sweeps = 0});
  EXPECT_TRUE(std::is_sorted(s.values.begin(), s.values.end()));
  const Batch<double> m = random_symmetric(2, 7, 22);
  const Solved<double> down = backwards(solve_by_reference(m)),
                       up = solve_by_reference(m, EighOrder::ascending);
  EXPECT_TRUE(bitwise_equal(down.values, up.values));
  EXPECT_TRUE(bitwise_equal(down.vectors.data, up.vectors.data));
}

TYPED_TEST(EighContract, ReadsTheLowerTriangleOnly) {
  for (const std::int64_t n : {2, 3, 8, 33, 100, 150})
    for (const std::int64_t batch : {1, 17}) {
      Batch<TypeParam> m = as<TypeParam>(random_symmetric(batch, n, 9));
      const Solved<TypeParam> before = solve(m);
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = i + 1; j < n; ++j)
            m(b, i, j) = std::numeric_limits<TypeParam>::quiet_NaN();
      const Solved<TypeParam> after = solve(m);
      EXPECT_TRUE(bitwise_equal(before.values, after.values)) << n;
      EXPECT_TRUE(bitwise_equal(before.vectors.data, after.vectors.data)) << n;
    }
}

TYPED_TEST(EighContract, RowAndBatchStrides) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 3, 16, 33, 150}) {
    for (const std::int64_t batch : {1, 18}) {
      const Batch<T> m = as<T>(random_symmetric(batch, n, 10));
      const Solved<T> packed = solve(m);
      const std::int64_t row = n + 5, matrix = n * row + 3;
      const T canary = T(-77);
      std::vector<T> in(std::size_t(batch * matrix), std::numeric_limits<T>::quiet_NaN());
      std::vector<T> out(in.size(), canary), values(std::size_t(batch * n));
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            in[std::size_t(b * matrix + i * row + j)] = m(b, i, j);
      cpu::eigh<T>({in.data(), batch, n, row, matrix}, values.data(),
                   {out.data(), batch, n, row, matrix}, EighOrder::descending);
      EXPECT_TRUE(bitwise_equal(values, packed.values));
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t k = 0; k < matrix; ++k) {
          const bool inside = k / row < n && k % row < n;
          ASSERT_EQ(out[std::size_t(b * matrix + k)],
                    inside ? packed.vectors(b, k / row, k % row) : canary);
        }
    }
  }
}

TYPED_TEST(EighContract, BatchMatesDoNotMatter) {
  using T = TypeParam;
  for (const std::int64_t n : {2, 5, 16, 33}) {
    const std::int64_t batch = 37;
    const Batch<T> m = as<T>(random_symmetric(batch, n, 11));
    const Solved<T> before = solve(m);
    Batch<T> other = m;
    for (std::int64_t b = 0; b < batch; ++b) {
      if (b % 5 == 1) other(b, n - 1, 0) = std::numeric_limits<T>::quiet_NaN();
      if (b % 5 == 2) other(b, n - 1, n - 1) = std::numeric_limits<T>::infinity();
      if (b % 5 == 3) std::fill(other.matrix(b), other.matrix(b) + n * n, T(0));
      if (b % 5 == 4)
        for (std::int64_t k = 0; k < n * n; ++k) other.matrix(b)[k] *= T(1e30);
    }
    const Solved<T> after = solve(other);
    for (std::int64_t b = 0; b < batch; ++b) {
      const T *x = before.vectors.matrix(b), *y = after.vectors.matrix(b);
      const EighStatus status = after.status[std::size_t(b)];
      if (b % 5 == 0) {
        EXPECT_TRUE(bitwise_equal(x, y, n * n)) << "n = " << n << ", matrix " << b;
        EXPECT_TRUE(bitwise_equal(&before.values[std::size_t(b * n)],
                                  &after.values[std::size_t(b * n)], n));
      } else if (b % 5 <= 2) {
        EXPECT_EQ(status, EighStatus::not_finite);
        for (std::int64_t k = 0; k < n * n; ++k) EXPECT_TRUE(std::isnan(y[k]));
        for (std::int64_t i = 0; i < n; ++i)
          EXPECT_TRUE(std::isnan(after.values[std::size_t(b * n + i)]));
      } else {
        EXPECT_EQ(status, EighStatus::converged) << "n = " << n << ", matrix " << b;
      }
    }
  }
}

TYPED_TEST(EighContract, PlaceInTheBatchDoesNotMatter) {
  for (const std::int64_t n : {2, 7, 32}) {
    const std::int64_t batch = 35;
    const Batch<TypeParam> m = as<TypeParam>(random_symmetric(batch, n, 12));
    Batch<TypeParam> turned(batch, n);
    for (std::int64_t b = 0; b < batch; ++b) turned.set((b + 13) % batch, m.matrix(b));
    const Solved<TypeParam> s = solve(m), t = solve(turned);
    for (std::int64_t b = 0; b < batch; ++b)
      EXPECT_TRUE(bitwise_equal(s.vectors.matrix(b), t.vectors.matrix((b + 13) % batch), n * n))
          << "n = " << n << ", matrix " << b;
  }
}

TYPED_TEST(EighContract, TheExecutorDoesNotMatter) {
  for (const auto& [n, batch] :
       {std::pair{4, 100}, {33, 19}, {100, 3}, {130, 1}, {130, 2}, {193, 1}, {390, 2}}) {
    const Batch<TypeParam> m = as<TypeParam>(random_symmetric(batch, n, 13));
    const Solved<TypeParam> one = solve(m);
    for (const int count : {2, 3}) {
      const Solved<TypeParam> several = solve(m, threads(count));
      EXPECT_TRUE(bitwise_equal(one.values, several.values)) << n;
      EXPECT_TRUE(bitwise_equal(one.vectors.data, several.vectors.data)) << n;
    }
  }
}

TYPED_TEST(EighContract, AloneOrInABatchTheSameToRounding) {
  for (const std::int64_t n : {4, 16, 64}) {
    const Batch<TypeParam> m = as<TypeParam>(wishart(n, 4 * n, 14));
    Batch<TypeParam> copies(33, n);
    for (std::int64_t b = 0; b < 33; ++b) copies.set(b, m.matrix(0));
    const Solved<TypeParam> alone = solve(m), among = solve(copies);
    for (std::size_t i = 0; i < std::size_t(n); ++i)
      EXPECT_NEAR(alone.values[i], among.values[i], rounding<TypeParam>(n, alone.values[0]));
  }
}

TYPED_TEST(EighContract, ScalesFreely) {
  using T = TypeParam;
  for (const std::int64_t n : {2, 6, 33, 150})
    for (const std::int64_t batch : {1, 16}) {
      if (n > 128 && batch > 1) continue;
      const Batch<T> m = as<T>(random_symmetric(batch, n, 15));
      const Solved<T> s = solve(m);
      for (const int exponent : {-100, -60, 60, 100}) {  // 1e-30 .. 1e30
        Batch<T> moved = m;
        for (T& x : moved.data) x = std::ldexp(x, exponent);
        const Solved<T> t = solve(moved);
        EXPECT_TRUE(bitwise_equal(s.vectors.data, t.vectors.data)) << exponent;
        for (std::size_t k = 0; k < s.values.size(); ++k)
          ASSERT_EQ(std::ldexp(s.values[k], exponent), t.values[k]) << exponent;
      }
    }
}

TYPED_TEST(EighContract, TheFallbackAnswersWhatTheBoundLeaves) {
  using T = TypeParam;
  for (const std::int64_t n : {2, 3, 16, 33})
    for (const std::int64_t batch : {1, 20}) {
      const Batch<T> m = as<T>(random_symmetric(batch, n, 16));
      Solved<T> s = solve(m);
      cpu::eigh<T>(m.view(), s.values.data(), s.vectors.view(), EighOrder::descending,
                   s.status.data(), serial(), cpu::EighLimits{.max_sweeps = 0});
      for (const EighStatus status : s.status) EXPECT_EQ(status, EighStatus::by_fallback);
      expect_right(m, s);
      expect_ordered_and_signed(m, s);
    }
}

TYPED_TEST(EighContract, ManySmallMatrices) {
  const Batch<TypeParam> m = as<TypeParam>(random_symmetric(65536, 2, 17));
  const Solved<TypeParam> s = solve(m, threads(2));
  expect_right(m, s);
  expect_ordered_and_signed(m, s);
}

TYPED_TEST(EighContract, LonelyRowsKeepTheirEigenvaluesToTheLastBit) {
  const TypeParam eps = TypeParam(1e-4);
  for (const std::int64_t n : {2, 4, 7, 16, 33, 64, 250})
    for (const std::int64_t batch : {1, 40}) {
      if (n > 128 && batch > 1) continue;
      SCOPED_TRACE("n = " + std::to_string(n) + ", batch = " + std::to_string(batch));
      Batch<TypeParam> m = as<TypeParam>(random_symmetric(batch, n, 5));
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            if (i % 3 == 1 || j % 3 == 1) m(b, i, j) = i == j ? eps : TypeParam(0);
      const Solved<TypeParam> s = solve(m);
      expect_right(m, s);
      expect_ordered_and_signed(m, s);
      for (std::int64_t b = 0; b < batch; ++b) {
        EXPECT_GE(std::count(s.values.begin() + b * n, s.values.begin() + (b + 1) * n, eps),
                  (n + 1) / 3);
        EXPECT_EQ(unit_columns(s.vectors, b, [](std::int64_t i) { return i % 3 == 1; }),
                  (n + 1) / 3);
      }
    }
}

TYPED_TEST(EighContract, StatusMayBeLeftOut) {
  const Batch<TypeParam> m = as<TypeParam>(random_symmetric(4, 5, 18));
  Solved<TypeParam> s = solve(m);
  const std::vector<TypeParam> values = s.values;
  cpu::eigh<TypeParam>(m.view(), s.values.data(), s.vectors.view(), EighOrder::descending);
  EXPECT_TRUE(bitwise_equal(values, s.values));
}

TYPED_TEST(EighContract, ShapesThatDisagreeAreAnError) {
  const Batch<TypeParam> m(2, 3);
  Batch<TypeParam> vectors(2, 4);
  std::vector<TypeParam> values(8);
  EXPECT_THROW(cpu::eigh<TypeParam>(m.view(), values.data(), vectors.view(), EighOrder::ascending),
               Error);
}

}  // namespace
}  // namespace keel::testing
