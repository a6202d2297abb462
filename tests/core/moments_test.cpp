#include "keel/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/activations.h"
#include "support/batch.h"
#include "support/errors.h"
#include "support/moments.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
Moments<Accumulator<T>> by_cpu(const ActivationBuffer<T>& x, const Executor& executor = serial()) {
  Moments<Accumulator<T>> result(x.shape);
  cpu::moments<T>(x.view(), result.mean.data(), result.matrices(), executor);
  return result;
}

template <typename T>
Moments<double> by_reference(const ActivationBuffer<T>& x) {
  const ActivationBuffer<double> exact = converted<double>(x, x.order);
  Moments<double> result(x.shape);
  reference::moments(exact.view(), result.mean.data(), result.matrices());
  return result;
}

template <typename T>
class MomentsOf : public ::testing::Test {};
TYPED_TEST_SUITE(MomentsOf, ElementTypes);

TYPED_TEST(MomentsOf, MatchReference) {
  for (const ActivationShape& shape : activation_shapes())
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<TypeParam>(random_activations(shape, 1), order);
      expect_close(by_cpu(x), by_reference(x));
    }
}

TYPED_TEST(MomentsOf, CrossMomentsMatchReference) {
  using A = Accumulator<TypeParam>;
  for (const ActivationShape& shape : activation_shapes())
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto left = converted<TypeParam>(random_activations(shape, 2), order);
      const auto right = converted<TypeParam>(random_activations(shape, 3), order);
      const std::vector<A> center = as<A>(Random(4).normals(shape.channels));
      Moments<A> got(shape);
      cpu::cross_moments<TypeParam>(left.view(), right.view(), center.data(), got.mean.data(),
                                    got.matrices());
      Moments<double> expected(shape), size(shape);
      auto left_exact = converted<double>(left, order),
           right_exact = converted<double>(right, order);
      const auto center_exact = as<double>(center);
      reference::cross_moments(left_exact.view(), right_exact.view(), center_exact.data(),
                               expected.mean.data(), expected.matrices());
      // The size of the summands. Rounding is measured against it, whatever cancels.
      for (std::int64_t k = 0; k < shape.samples(); ++k)
        for (std::int64_t c = 0; c < shape.channels; ++c) {
          left_exact.at(k, c) = std::abs(left_exact.at(k, c));
          right_exact.at(k, c) = std::abs(right_exact.at(k, c) - center_exact[std::size_t(c)]);
        }
      reference::cross_moments(left_exact.view(), right_exact.view(), nullptr, size.mean.data(),
                               size.matrices());
      for (std::size_t i = 0; i < got.mean.size(); ++i)
        ASSERT_NEAR(double(got.mean[i]), expected.mean[i], rounding<A>(2, size.mean[i]));
      for (std::size_t i = 0; i < got.covariance.size(); ++i)
        ASSERT_NEAR(double(got.covariance[i]), expected.covariance[i],
                    rounding<A>(2, size.covariance[i]));
    }
}

template <typename T>
void expect_close_near_the_end_of_the_range() {
  // 34 squares of size 1e37 overflow float32, but their mean does not.
  for (const ActivationShape& shape :
       {ActivationShape{300, 8, 3, 2}, {3, 15, 150, 5}, {2, 200, 150, 1}, {700, 1, 1, 1}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      ActivationBuffer<double> wide = random_activations(shape, 1);
      for (double& x : wide.data) x *= 2e18;
      const auto x = converted<T>(wide, order);
      expect_close(by_cpu(x), by_reference(x));
      // The mean is representable if the activations are.
      for (double& y : wide.data) y *= 1e18;
      const auto huge = converted<T>(wide, order);
      const auto got = by_cpu(huge);
      const auto expected = by_reference(huge);
      for (std::size_t c = 0; c < got.mean.size(); ++c)
        ASSERT_NEAR(
            double(got.mean[c]), expected.mean[c],
            rounding<float>(0, std::abs(expected.mean[c]) + expected.deviation(std::int64_t(c))));
    }
}
TEST(Moments, FloatCovariancesThatFitDoNotOverflow) {
  expect_close_near_the_end_of_the_range<float>();
}
TEST(Moments, BFloat16CovariancesThatFitDoNotOverflow) {
  expect_close_near_the_end_of_the_range<BFloat16>();
}

TEST(Moments, AMeanOfTenThousandDeviationsCostsNothing) {
  for (const ActivationShape& shape :
       {ActivationShape{16, 32, 81, 2}, {3, 8, 2000, 2}, {700, 5, 1, 1}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<float>(random_activations(shape, 11, 1e4), order);
      expect_close(by_cpu(x), by_reference(x));
    }
}

TEST(Moments, AnUnluckyFirstSampleCostsLittle) {
  // Borders and corners far from everything else, as zero padding makes them.
  const ActivationShape shape{8, 4, 400, 1};
  for (const Order order : kOrders) {
    auto x = converted<float>(random_activations(shape, 12, 1e4), order);
    for (std::int64_t c = 0; c < shape.channels; ++c) x.at(0, c) = 0;
    expect_close(by_cpu(x), by_reference(x));
  }
}

TEST(Moments, AMillionSamplesLoseNothing) {
  const ActivationShape shape{4, 3, 250000, 1};
  for (const Order order : kOrders) {
    const auto x = converted<float>(random_activations(shape, 13), order);
    const auto got = by_cpu(x, threads(2));
    const auto expected = by_reference(x);
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 3; ++j)
        EXPECT_NEAR(got.entry(0, i, j), expected.entry(0, i, j),
                    2 * kEps<float> * expected.deviation(i) * expected.deviation(j));
  }
}

TEST(Moments, TheSameBitsOnAnyNumberOfThreads) {
  for (const ActivationShape& shape :
       {ActivationShape{8, 64, 900, 1}, {8, 64, 900, 16}, {2, 260, 300, 1}, {4, 384, 49, 6}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<float>(random_activations(shape, 14), order);
      const auto once = by_cpu(x);
      Moments<float> cross_once(shape);
      cpu::cross_moments<float>(x.view(), x.view(), once.mean.data(), cross_once.mean.data(),
                                cross_once.matrices());
      for (const int count : {2, 5}) {
        const auto again = by_cpu(x, threads(count));
        EXPECT_EQ(once.mean, again.mean);
        EXPECT_EQ(once.covariance, again.covariance);
        Moments<float> cross(shape);
        cpu::cross_moments<float>(x.view(), x.view(), once.mean.data(), cross.mean.data(),
                                  cross.matrices(), threads(count));
        EXPECT_EQ(cross_once.mean, cross.mean);
        EXPECT_EQ(cross_once.covariance, cross.covariance);
      }
    }
}

TEST(Moments, ScaleWithTheData) {
  const ActivationShape shape{3, 20, 100, 2};
  const auto x = converted<float>(random_activations(shape, 15), Order::contiguous);
  const auto once = by_cpu(x);
  for (const int exponent : {-50, 50}) {
    auto scaled = x;
    for (float& entry : scaled.data) entry = std::ldexp(entry, exponent);
    const auto got = by_cpu(scaled);
    for (std::size_t i = 0; i < once.mean.size(); ++i)
      EXPECT_EQ(got.mean[i], std::ldexp(once.mean[i], exponent));
    for (std::size_t i = 0; i < once.covariance.size(); ++i)
      EXPECT_EQ(got.covariance[i], std::ldexp(once.covariance[i], 2 * exponent));
  }
}

TEST(Moments, ConstantChannelsHaveNoDeviation) {
  const ActivationShape shape{5, 6, 77, 1};
  for (const Order order : kOrders) {
    ActivationBuffer<float> x(shape, order);
    for (std::int64_t k = 0; k < shape.samples(); ++k)
      for (std::int64_t c = 0; c < shape.channels; ++c) x.at(k, c) = 0.1f + 1000.0f * float(c);
    const auto got = by_cpu(x);
    for (std::int64_t c = 0; c < shape.channels; ++c)
      EXPECT_EQ(got.mean[std::size_t(c)], 0.1f + 1000.0f * float(c));
    for (const float entry : got.covariance) EXPECT_EQ(entry, 0);
  }
}

TEST(Moments, ASpreadAtTheEndOfTheRangeIsFinite) {
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  ActivationBuffer<double> x({4, 1, 2, 1}, Order::contiguous);
  for (std::size_t k = 0; k < x.data.size(); ++k) x.data[k] = k % 2 == 0 ? kTiny : 3 * kTiny;
  const auto got = by_cpu(x);
  EXPECT_TRUE(std::isfinite(got.mean[0]));
  EXPECT_EQ(got.covariance[0], 0);
}

TEST(Moments, ABadValueReachesItsOwnChannelOnly) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const Order order : kOrders)
      for (const std::int64_t sample : {0, 37, 199}) {
        const ActivationShape shape{2, 12, 100, 3};
        auto x = converted<float>(random_activations(shape, 16), order);
        const auto clean = by_cpu(x);
        const std::int64_t channel = 5;  // group 1, place 1
        x.at(sample, channel) = bad;
        const auto got = by_cpu(x);
        for (std::int64_t c = 0; c < shape.channels; ++c)
          EXPECT_EQ(std::isfinite(got.mean[std::size_t(c)]), c != channel);
        for (std::int64_t g = 0; g < 3; ++g)
          for (std::int64_t i = 0; i < 4; ++i)
            for (std::int64_t j = 0; j < 4; ++j) {
              if (g == 1 && (i == 1 || j == 1))
                EXPECT_FALSE(std::isfinite(got.entry(g, i, j)));
              else
                EXPECT_EQ(got.entry(g, i, j), clean.entry(g, i, j));
            }
      }
}

TEST(Moments, NothingToAverage) {
  for (const Order order : kOrders)
    for (const ActivationShape& shape : {ActivationShape{0, 4, 5, 2}, {3, 4, 0, 1}}) {
      const ActivationBuffer<float> x(shape, order);
      const auto got = by_cpu(x, threads(2));
      for (const float entry : got.mean) EXPECT_TRUE(std::isnan(entry));
      for (const float entry : got.covariance) EXPECT_TRUE(std::isnan(entry));
      Moments<float> cross(shape);
      const std::vector<float> center(4, 0.0f);
      cpu::cross_moments<float>(x.view(), x.view(), center.data(), cross.mean.data(),
                                cross.matrices());
      for (const float entry : cross.mean) EXPECT_EQ(entry, 0);
      for (const float entry : cross.covariance) EXPECT_EQ(entry, 0);
    }
  by_cpu(ActivationBuffer<float>({3, 0, 5, 1}, Order::contiguous));
}

TEST(PartialMoments, OfPiecesAddUpToThoseOfTheWhole) {
  const ActivationShape shape{7, 12, 60, 3};
  auto x = converted<float>(random_activations(shape, 17, 1e3), Order::contiguous);
  for (std::int64_t k = 3 * 60; k < shape.samples(); ++k)  // the pieces have different means
    for (std::int64_t c = 0; c < shape.channels; ++c) x.at(k, c) += 2;
  const auto expected = by_reference(x);
  for (const double* shift : {(const double*)nullptr, expected.mean.data()}) {
    std::vector<double> total(std::size_t(partial_moments_size(12, 3)), 0.0);
    for (const auto& [first, count] : {std::pair<int, int>{0, 3}, {3, 0}, {3, 4}}) {
      std::vector<double> part(total.size(), -77.0);
      Activations<const float> piece = static_cast<const ActivationBuffer<float>&>(x).view();
      piece.data += first * 12 * 60;
      piece.batch = count;
      cpu::partial_moments<float>(piece, shift, part.data(), threads(2));
      EXPECT_EQ(part[0], count * 60);
      for (std::size_t k = 0; k < total.size(); ++k) total[k] += part[k];
      for (std::size_t g = 0; g < 3; ++g)
        for (std::size_t i = 0; i < 4; ++i)
          for (std::size_t j = 0; j < i; ++j)
            EXPECT_EQ(part[13 + (g * 4 + i) * 4 + j], part[13 + (g * 4 + j) * 4 + i]);
    }
    Moments<float> got(shape);
    cpu::moments_from_partial(total.data(), shift, got.mean.data(), got.matrices());
    expect_close(got, expected);
    for (std::size_t c = 0; c < 12 && shift == nullptr; ++c)
      EXPECT_NEAR(total[1 + c] / double(shape.samples()), expected.mean[c],
                  kEps<float> * std::abs(expected.mean[c]));
  }
}

TEST(PartialMoments, OfNothingAreZeroAndGiveNaN) {
  const ActivationBuffer<float> x({0, 4, 5, 2}, Order::contiguous);
  std::vector<double> sums(std::size_t(partial_moments_size(4, 2)), -77.0);
  cpu::partial_moments<float>(x.view(), nullptr, sums.data());
  for (const double entry : sums) EXPECT_EQ(entry, 0);
  Moments<float> got(x.shape);
  cpu::moments_from_partial(sums.data(), nullptr, got.mean.data(), got.matrices());
  for (const float entry : got.mean) EXPECT_TRUE(std::isnan(entry));
  for (const float entry : got.covariance) EXPECT_TRUE(std::isnan(entry));
  cpu::partial_moments<float>(ActivationBuffer<float>({3, 0, 5, 1}, Order::contiguous).view(),
                              nullptr, nullptr);
}

TEST(Moments, ErrorsNameWhatWasExpected) {
  std::vector<float> data(60), mean(10), covariance(100);
  const Activations<const float> uneven{data.data(), 2, 10, 3, 4};
  EXPECT_EQ(
      error_of(
          [&] { cpu::moments<float>(uneven, mean.data(), contiguous(covariance.data(), 4, 2)); }),
      "keel::moments: expected input (N, C, S) with groups that divide C, got (2, 10, 3) in 4 "
      "groups");
  const Activations<const float> even{data.data(), 2, 10, 3, 5};
  EXPECT_EQ(error_of([&] {
              cpu::moments<float>(even, mean.data(), contiguous(covariance.data(), 2, 5));
            }),
            "keel::moments: expected covariance of shape (5, 2, 2), got (2, 5, 5)");
  Activations<const float> other = even;
  other.order = Order::channels_last;
  EXPECT_EQ(error_of([&] {
              cpu::cross_moments<float>(even, other, nullptr, mean.data(),
                                        contiguous(covariance.data(), 5, 2));
            }),
            "keel::cross_moments: expected right (2, 10, 3) in 5 groups, got (2, 10, 3) "
            "channels_last in 5 groups");
}

}  // namespace
}  // namespace keel::testing
