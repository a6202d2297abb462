// Tests the contract in keel/running_average.h.

#include "keel/running_average.h"

#include <gtest/gtest.h>

#include <limits>

#include "keel/error.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
struct Tracked {
  std::int64_t groups, d;
  std::vector<T> mean, batch_mean;
  std::vector<T> variance;
  Batch<T> layer_matrix, covariance, batch_layer_matrix;
  std::int64_t batches = 0;

  Tracked(std::int64_t count, std::int64_t size, bool standardising)
      : groups(count),
        d(size),
        mean(as<T>(Random(1).normals(count * size))),
        batch_mean(as<T>(Random(2).normals(count * size))),
        variance(standardising ? as<T>(Random(3).normals(count * size)) : std::vector<T>()),
        layer_matrix(as<T>(random_matrices(count, size, 4))),
        covariance(as<T>(random_matrices(count, size, 5))),
        batch_layer_matrix(as<T>(random_matrices(count, size, 6))) {
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t i = 0; i < d; ++i)
        covariance(g, i, i) = T(0.5) + covariance(g, i, i) * covariance(g, i, i);
  }

  void running_average(const std::optional<double>& momentum, double eps,
                       const Executor& executor = serial()) {
    cpu::running_average<T>(
        momentum, eps, batch_mean.data(), std::as_const(covariance).view(),
        std::as_const(batch_layer_matrix).view(),
        {mean.data(), layer_matrix.view(), variance.empty() ? nullptr : variance.data(), &batches},
        executor);
  }
};

template <typename T>
class RunningAverage : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RunningAverage, Types);

TYPED_TEST(RunningAverage, MovesEachStatisticByItsShare) {
  const double eps = 1e-3;
  for (const bool standardising : {false, true})
    for (const std::optional<double> momentum : {std::optional<double>(), std::optional(0.3)}) {
      Tracked<TypeParam> t(3, 4, standardising);
      t.batches = 4;
      const Tracked<TypeParam> before = t;
      t.running_average(momentum, eps, threads(2));
      EXPECT_EQ(t.batches, 5);
      const double share = momentum.value_or(1.0 / 5);
      const auto expect = [&](double now, double old, double batch) {
        const double bound = rounding<TypeParam>(1, std::abs(old) + std::abs(batch));
        EXPECT_NEAR(now, (1 - share) * old + share * batch, bound);
      };
      for (std::int64_t g = 0; g < 3; ++g)
        for (std::int64_t i = 0; i < 4; ++i) {
          const auto channel = std::size_t(g * 4 + i);
          expect(t.mean[channel], before.mean[channel], t.batch_mean[channel]);
          if (standardising)
            expect(t.variance[channel], before.variance[channel], t.covariance(g, i, i));
          for (std::int64_t j = 0; j < 4; ++j) {
            const double deviation = std::sqrt(double(t.covariance(g, j, j)) + eps);
            expect(t.layer_matrix(g, i, j), before.layer_matrix(g, i, j),
                   t.batch_layer_matrix(g, i, j) * (standardising ? deviation : 1));
          }
        }
    }
}

TYPED_TEST(RunningAverage, WhatIsNotFiniteLeavesAllAsItWas) {
  using Limits = std::numeric_limits<TypeParam>;
  for (const TypeParam bad : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()})
    for (const int place : {0, 1, 2}) {
      Tracked<TypeParam> t(2, 3, true);
      if (place == 0) t.batch_mean[5] = bad;
      if (place == 1) t.covariance(1, 2, 2) = bad;
      if (place == 2) t.batch_layer_matrix(0, 1, 2) = bad;
      const Tracked<TypeParam> before = t;
      t.running_average(0.1, 1e-4);
      EXPECT_EQ(t.batches, 0);
      EXPECT_TRUE(bitwise_equal(t.mean, before.mean));
      EXPECT_TRUE(bitwise_equal(t.variance, before.variance));
      EXPECT_TRUE(bitwise_equal(t.layer_matrix.data, before.layer_matrix.data));
    }
}

TYPED_TEST(RunningAverage, OnlyTheCovariancesDiagonalIsRead) {
  Tracked<TypeParam> t(1, 3, true), clean(1, 3, true);
  t.covariance(0, 0, 2) = std::numeric_limits<TypeParam>::quiet_NaN();
  t.running_average(0.1, 0);
  clean.running_average(0.1, 0);
  EXPECT_EQ(t.batches, 1);
  EXPECT_TRUE(bitwise_equal(t.layer_matrix.data, clean.layer_matrix.data));
}

TYPED_TEST(RunningAverage, AShareOfOneMendsStatisticsThatAreNaN) {
  Tracked<TypeParam> t(1, 3, true), clean(1, 3, true);
  t.mean[1] = t.variance[2] = t.layer_matrix(0, 1, 2) = std::numeric_limits<TypeParam>::quiet_NaN();
  t.running_average(1.0, 1e-4);
  clean.running_average(1.0, 1e-4);
  EXPECT_TRUE(bitwise_equal(t.mean, clean.mean));
  EXPECT_TRUE(bitwise_equal(t.variance, clean.variance));
  EXPECT_TRUE(bitwise_equal(t.layer_matrix.data, clean.layer_matrix.data));
}

TYPED_TEST(RunningAverage, AShareOfOneIsTheBatchToTheLastBit) {
  // Old values, however large, leave no trace. Neither does a batch with a share of zero.
  for (const std::optional<double> momentum :
       {std::optional<double>(), std::optional(1.0), std::optional(0.0)}) {
    Tracked<TypeParam> t(2, 3, true);
    for (std::size_t c = 0; c < t.mean.size(); ++c) {
      t.mean[c] *= TypeParam(1e8);
      t.variance[c] *= TypeParam(1e16);
    }
    for (TypeParam& x : t.layer_matrix.data) x *= TypeParam(1e8);
    const Tracked<TypeParam> before = t;
    t.running_average(momentum, 0);
    EXPECT_TRUE(bitwise_equal(t.mean, momentum == 0.0 ? before.mean : t.batch_mean));
    for (std::int64_t g = 0; g < 2; ++g)
      for (std::int64_t i = 0; i < 3; ++i) {
        const TypeParam batch = t.covariance(g, i, i);
        const auto channel = std::size_t(g * 3 + i);
        EXPECT_EQ(t.variance[channel], momentum == 0.0 ? before.variance[channel] : batch);
        for (std::int64_t j = 0; j < 3; ++j) {
          const TypeParam scaled = t.batch_layer_matrix(g, i, j) * std::sqrt(t.covariance(g, j, j));
          EXPECT_EQ(t.layer_matrix(g, i, j),
                    momentum == 0.0 ? before.layer_matrix(g, i, j) : scaled);
        }
      }
  }
}

TYPED_TEST(RunningAverage, LargeNumbersAreFinite) {
  Tracked<TypeParam> t(1, 2, false);
  t.batch_mean = {std::numeric_limits<TypeParam>::max(), std::numeric_limits<TypeParam>::max()};
  t.running_average(0.5, 0);
  EXPECT_EQ(t.batches, 1);
}

TEST(RunningAverage, ShapesMustAgree) {
  Tracked<float> t(2, 3, false);
  t.batch_layer_matrix = Batch<float>(2, 4);
  EXPECT_THROW(t.running_average(0.1, 0), Error);
}

}  // namespace
}  // namespace keel::testing
