// The contract in keel/track.h.

#include "keel/track.h"

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
  Batch<T> subspace, covariance, batch_subspace;
  std::int64_t batches = 0;

  Tracked(std::int64_t count, std::int64_t size, bool standardising)
      : groups(count),
        d(size),
        mean(as<T>(Random(1).normals(count * size))),
        batch_mean(as<T>(Random(2).normals(count * size))),
        variance(standardising ? as<T>(Random(3).normals(count * size)) : std::vector<T>()),
        subspace(as<T>(random_matrices(count, size, 4))),
        covariance(as<T>(random_matrices(count, size, 5))),
        batch_subspace(as<T>(random_matrices(count, size, 6))) {
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t i = 0; i < d; ++i)
        covariance(g, i, i) = T(0.5) + covariance(g, i, i) * covariance(g, i, i);
  }

  void track(const std::optional<double>& momentum, double eps,
             const Executor& executor = serial()) {
    cpu::track<T>(
        momentum, eps, batch_mean.data(), std::as_const(covariance).view(),
        std::as_const(batch_subspace).view(),
        {mean.data(), subspace.view(), variance.empty() ? nullptr : variance.data(), &batches},
        executor);
  }
};

template <typename T>
class Track : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Track, Types);

TYPED_TEST(Track, MovesEachStatisticByItsShare) {
  const double eps = 1e-3;
  for (const bool standardising : {false, true})
    for (const std::optional<double> momentum : {std::optional<double>(), std::optional(0.3)}) {
      Tracked<TypeParam> t(3, 4, standardising);
      t.batches = 4;
      const Tracked<TypeParam> before = t;
      t.track(momentum, eps, threads(2));
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
            expect(t.subspace(g, i, j), before.subspace(g, i, j),
                   t.batch_subspace(g, i, j) * (standardising ? deviation : 1));
          }
        }
    }
}

TYPED_TEST(Track, WhatIsNotFiniteLeavesAllAsItWas) {
  using Limits = std::numeric_limits<TypeParam>;
  for (const TypeParam bad : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()})
    for (const int place : {0, 1, 2}) {
      Tracked<TypeParam> t(2, 3, true);
      if (place == 0) t.batch_mean[5] = bad;
      if (place == 1) t.covariance(1, 2, 2) = bad;
      if (place == 2) t.batch_subspace(0, 1, 2) = bad;
      const Tracked<TypeParam> before = t;
      t.track(0.1, 1e-4);
      EXPECT_EQ(t.batches, 0);
      EXPECT_TRUE(bitwise_equal(t.mean, before.mean));
      EXPECT_TRUE(bitwise_equal(t.variance, before.variance));
      EXPECT_TRUE(bitwise_equal(t.subspace.data, before.subspace.data));
    }
}

TYPED_TEST(Track, OnlyTheCovariancesDiagonalIsRead) {
  Tracked<TypeParam> t(1, 3, true), clean(1, 3, true);
  t.covariance(0, 0, 2) = std::numeric_limits<TypeParam>::quiet_NaN();
  t.track(0.1, 0);
  clean.track(0.1, 0);
  EXPECT_EQ(t.batches, 1);
  EXPECT_TRUE(bitwise_equal(t.subspace.data, clean.subspace.data));
}

TYPED_TEST(Track, AShareOfOneMendsStatisticsThatAreNaN) {
  Tracked<TypeParam> t(1, 3, true), clean(1, 3, true);
  t.mean[1] = t.variance[2] = t.subspace(0, 1, 2) = std::numeric_limits<TypeParam>::quiet_NaN();
  t.track(1.0, 1e-4);
  clean.track(1.0, 1e-4);
  EXPECT_TRUE(bitwise_equal(t.mean, clean.mean));
  EXPECT_TRUE(bitwise_equal(t.variance, clean.variance));
  EXPECT_TRUE(bitwise_equal(t.subspace.data, clean.subspace.data));
}

TYPED_TEST(Track, AShareOfOneIsTheBatchToTheLastBit) {
  // What was there before, however large, leaves no trace; nor does a batch whose share is nothing.
  for (const std::optional<double> momentum :
       {std::optional<double>(), std::optional(1.0), std::optional(0.0)}) {
    Tracked<TypeParam> t(2, 3, true);
    for (std::size_t c = 0; c < t.mean.size(); ++c) {
      t.mean[c] *= TypeParam(1e8);
      t.variance[c] *= TypeParam(1e16);
    }
    for (TypeParam& x : t.subspace.data) x *= TypeParam(1e8);
    const Tracked<TypeParam> before = t;
    t.track(momentum, 0);
    EXPECT_TRUE(bitwise_equal(t.mean, momentum == 0.0 ? before.mean : t.batch_mean));
    for (std::int64_t g = 0; g < 2; ++g)
      for (std::int64_t i = 0; i < 3; ++i) {
        const TypeParam batch = t.covariance(g, i, i);
        const auto channel = std::size_t(g * 3 + i);
        EXPECT_EQ(t.variance[channel], momentum == 0.0 ? before.variance[channel] : batch);
        for (std::int64_t j = 0; j < 3; ++j) {
          const TypeParam scaled = t.batch_subspace(g, i, j) * std::sqrt(t.covariance(g, j, j));
          EXPECT_EQ(t.subspace(g, i, j), momentum == 0.0 ? before.subspace(g, i, j) : scaled);
        }
      }
  }
}

TYPED_TEST(Track, LargeNumbersAreFinite) {
  Tracked<TypeParam> t(1, 2, false);
  t.batch_mean = {std::numeric_limits<TypeParam>::max(), std::numeric_limits<TypeParam>::max()};
  t.track(0.5, 0);
  EXPECT_EQ(t.batches, 1);
}

TEST(Track, ShapesMustAgree) {
  Tracked<float> t(2, 3, false);
  t.batch_subspace = Batch<float>(2, 4);
  EXPECT_THROW(t.track(0.1, 0), Error);
}

}  // namespace
}  // namespace keel::testing
