#pragma once

// The contract in keel/moments.h, for every backend.

#include "support/backend.h"
#include "support/errors.h"
#include "support/moments.h"

namespace keel::testing {

template <typename Backend, typename A>
class MomentsThere {
 public:
  explicit MomentsThere(const ActivationShape& shape)
      : shape_(shape), mean_(Moments<A>(shape).mean), covariance_(Moments<A>(shape).covariance) {}
  A* mean() { return mean_.data(); }
  Matrices<A> matrices() {
    return contiguous(covariance_.data(), shape_.groups, shape_.group_size());
  }
  Moments<A> back() {
    Moments<A> m(shape_);
    m.mean = mean_.back();
    m.covariance = covariance_.back();
    return m;
  }

 private:
  ActivationShape shape_;
  typename Backend::template Numbers<A> mean_, covariance_;
};

template <typename Backend, typename T>
Moments<Accumulator<T>> moments_by(const ActivationBuffer<T>& x, std::size_t skip = 0,
                                   const typename Backend::Way& way = Backend::way()) {
  ActivationsIn<Backend::template Numbers, T> input(x, skip);
  MomentsThere<Backend, Accumulator<T>> result(x.shape);
  Backend::template moments<T>(way, input.view(), result.mean(), result.matrices());
  return result.back();
}

/// A null center is zero.
template <typename Backend, typename T>
Moments<Accumulator<T>> cross_moments_by(const ActivationBuffer<T>& left,
                                         const ActivationBuffer<T>& right,
                                         const std::vector<Accumulator<T>>* center,
                                         const typename Backend::Way& way = Backend::way()) {
  ActivationsIn<Backend::template Numbers, T> left_there(left), right_there(right);
  typename Backend::template Numbers<Accumulator<T>> center_there(
      center ? *center : std::vector<Accumulator<T>>{});
  MomentsThere<Backend, Accumulator<T>> result(left.shape);
  Backend::template cross_moments<T>(way, left_there.view(), right_there.view(),
                                     center ? center_there.data() : nullptr, result.mean(),
                                     result.matrices());
  return result.back();
}

template <typename T>
Moments<double> moments_by_reference(const ActivationBuffer<T>& x) {
  const ActivationBuffer<double> exact = converted<double>(x, x.order);
  Moments<double> result(x.shape);
  reference::moments(exact.view(), result.mean.data(), result.matrices());
  return result;
}

template <typename A>
void expect_same_bits(const Moments<A>& a, const Moments<A>& b) {
  EXPECT_TRUE(same_bits(a.mean, b.mean));
  EXPECT_TRUE(same_bits(a.covariance, b.covariance));
}

template <typename Case>
class MomentsContractOf : public ::testing::Test {};
TYPED_TEST_SUITE_P(MomentsContractOf);

TYPED_TEST_P(MomentsContractOf, MatchTheReference) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const ActivationShape& shape : B::shapes())
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<T>(random_activations(shape, 1), order);
      expect_close(moments_by<B>(x), moments_by_reference(x));
    }
}

TYPED_TEST_P(MomentsContractOf, MatchWhereverTheDataStarts) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const ActivationShape& shape :
       {ActivationShape{3, 64, 64, 1}, {3, 64, 64, 16}, {2, 128, 16, 1}})
    for (const Order order : kOrders)
      for (const std::size_t skip : {1, 2, 4}) {
        SCOPED_TRACE(name(shape, order) + ", " + std::to_string(skip) + " further on");
        const auto x = converted<T>(random_activations(shape, 2), order);
        expect_close(moments_by<B>(x, skip), moments_by_reference(x));
      }
}

TYPED_TEST_P(MomentsContractOf, CrossMomentsMatchTheReference) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  using A = Accumulator<T>;
  for (const ActivationShape& shape : B::shapes())
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto left = converted<T>(random_activations(shape, 3), order);
      const auto right = converted<T>(random_activations(shape, 4), order);
      const std::vector<A> drawn = as<A>(Random(5).normals(shape.channels));
      const auto left_exact = converted<double>(left, order),
                 right_exact = converted<double>(right, order);
      for (const bool centered : {true, false}) {
        const auto got = cross_moments_by<B>(left, right, centered ? &drawn : nullptr);
        const std::vector<double> center =
            centered ? as<double>(drawn) : std::vector<double>(drawn.size(), 0.0);
        Moments<double> expected(shape), size(shape);
        reference::cross_moments(left_exact.view(), right_exact.view(), center.data(),
                                 expected.mean.data(), expected.matrices());
        // The size of the summands. Rounding is measured against it, whatever cancels.
        auto left_size = left_exact, right_size = right_exact;
        for (std::int64_t k = 0; k < shape.samples(); ++k)
          for (std::int64_t c = 0; c < shape.channels; ++c) {
            left_size.at(k, c) = std::abs(left_size.at(k, c));
            right_size.at(k, c) = std::abs(right_size.at(k, c) - center[std::size_t(c)]);
          }
        cpu::cross_moments<double>(left_size.view(), right_size.view(), nullptr, size.mean.data(),
                                   size.matrices());
        for (std::size_t i = 0; i < got.mean.size(); ++i)
          ASSERT_NEAR(double(got.mean[i]), expected.mean[i], rounding<A>(2, size.mean[i]));
        for (std::size_t i = 0; i < got.covariance.size(); ++i)
          ASSERT_NEAR(double(got.covariance[i]), expected.covariance[i],
                      rounding<A>(2, size.covariance[i]))
              << i << (centered ? ", centered" : "");
      }
    }
}

REGISTER_TYPED_TEST_SUITE_P(MomentsContractOf, MatchTheReference, MatchWhereverTheDataStarts,
                            CrossMomentsMatchTheReference);

template <typename Backend>
class MomentsContract : public ::testing::Test {};
TYPED_TEST_SUITE_P(MomentsContract);

/// Every kernel of every backend: full and partial slabs of narrow and wide groups, a group of several parts.
inline const std::vector<ActivationShape> kShapesOfEveryKernel = {
    {300, 8, 3, 2},  {3, 15, 150, 5},  {2, 200, 150, 1}, {700, 1, 1, 1},
    {4, 64, 256, 1}, {4, 64, 256, 16}, {2, 128, 196, 2}, {1, 64, 4099, 2}};

/// 34 squares of size 1e37 overflow float32, but their mean does not.
template <typename T>
ActivationBuffer<T> near_the_end_of_the_range(const ActivationShape& shape, Order order,
                                              double times = 1) {
  ActivationBuffer<double> wide = random_activations(shape, 1);
  for (double& x : wide.data) x *= 2e18 * times;
  return converted<T>(wide, order);
}

template <typename Backend, typename T>
void expect_close_near_the_end_of_the_range() {
  for (const ActivationShape& shape : kShapesOfEveryKernel)
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = near_the_end_of_the_range<T>(shape, order);
      const auto got = moments_by<Backend>(x);
      expect_close(got, moments_by_reference(x));
      expect_same_bits(got, moments_by<Backend>(x));
      // The mean is representable if the activations are.
      const auto huge = near_the_end_of_the_range<T>(shape, order, 1e18);
      const auto mean = moments_by<Backend>(huge).mean;
      const auto expected = moments_by_reference(huge);
      for (std::size_t c = 0; c < mean.size(); ++c)
        ASSERT_NEAR(
            double(mean[c]), expected.mean[c],
            rounding<float>(0, std::abs(expected.mean[c]) + expected.deviation(std::int64_t(c))));
    }
}
TYPED_TEST_P(MomentsContract, FloatCovariancesThatFitDoNotOverflow) {
  expect_close_near_the_end_of_the_range<TypeParam, float>();
}
TYPED_TEST_P(MomentsContract, BFloat16CovariancesThatFitDoNotOverflow) {
  expect_close_near_the_end_of_the_range<TypeParam, BFloat16>();
}

TYPED_TEST_P(MomentsContract, AMeanOfTenThousandDeviationsCostsNothing) {
  for (const ActivationShape& shape : {ActivationShape{16, 32, 81, 2},
                                       {3, 8, 2000, 2},
                                       {700, 5, 1, 1},
                                       {4, 64, 1024, 1},
                                       {4, 64, 256, 16},
                                       {4, 128, 196, 1}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<float>(random_activations(shape, 11, 1e4), order);
      expect_close(moments_by<TypeParam>(x), moments_by_reference(x));
    }
}

TYPED_TEST_P(MomentsContract, SamplesFarFromTheOthersCostLittle) {
  // Borders and corners, as zero padding makes them; the first sample is one.
  const ActivationShape shape{8, 4, 400, 1};
  for (const Order order : kOrders) {
    auto x = converted<float>(random_activations(shape, 12, 1e4), order);
    for (std::int64_t c = 0; c < shape.channels; ++c) x.at(0, c) = 0;
    expect_close(moments_by<TypeParam>(x), moments_by_reference(x));
  }
}

template <typename Backend>
void expect_a_million_samples_lose_nothing(std::int64_t channels) {
  const ActivationShape shape{4, channels, 300000, 1};
  for (const Order order : kOrders) {
    SCOPED_TRACE(name(shape, order));
    const auto x = converted<float>(random_activations(shape, 13), order);
    const auto got = moments_by<Backend>(x, 0, Backend::ways().back());
    const auto expected = moments_by_reference(x);
    for (std::int64_t i = 0; i < channels; ++i)
      for (std::int64_t j = 0; j < channels; ++j)
        EXPECT_NEAR(got.entry(0, i, j), expected.entry(0, i, j),
                    2 * kEps<float> * expected.deviation(i) * expected.deviation(j));
  }
}
TYPED_TEST_P(MomentsContract, AMillionSamplesLoseNothing) {
  expect_a_million_samples_lose_nothing<TypeParam>(3);
}

TYPED_TEST_P(MomentsContract, TheSameBitsEveryTime) {
  for (const ActivationShape& shape :
       {ActivationShape{8, 64, 900, 1}, {8, 64, 900, 16}, {2, 260, 300, 1}, {4, 384, 49, 6}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<float>(random_activations(shape, 14), order);
      const auto once = moments_by<TypeParam>(x);
      const auto cross = cross_moments_by<TypeParam>(x, x, nullptr),
                 centered = cross_moments_by<TypeParam>(x, x, &once.mean);
      for (const auto& way : TypeParam::ways()) {
        expect_same_bits(moments_by<TypeParam>(x, 0, way), once);
        expect_same_bits(cross_moments_by<TypeParam>(x, x, nullptr, way), cross);
        expect_same_bits(cross_moments_by<TypeParam>(x, x, &once.mean, way), centered);
      }
    }
}

TYPED_TEST_P(MomentsContract, ScaleWithTheData) {
  for (const ActivationShape& shape : {ActivationShape{3, 20, 100, 2}, {3, 64, 100, 1}}) {
    const auto x = converted<float>(random_activations(shape, 15), Order::contiguous);
    const auto once = moments_by<TypeParam>(x);
    for (const int exponent : {-50, 50}) {
      auto scaled = x;
      for (float& entry : scaled.data) entry = std::ldexp(entry, exponent);
      const auto got = moments_by<TypeParam>(scaled);
      for (std::size_t i = 0; i < once.mean.size(); ++i)
        EXPECT_EQ(got.mean[i], std::ldexp(once.mean[i], exponent));
      for (std::size_t i = 0; i < once.covariance.size(); ++i)
        EXPECT_EQ(got.covariance[i], std::ldexp(once.covariance[i], 2 * exponent));
    }
  }
}

TYPED_TEST_P(MomentsContract, ConstantChannelsHaveNoDeviation) {
  for (const ActivationShape& shape : {ActivationShape{5, 6, 77, 1}, {3, 70, 50, 1}})
    for (const Order order : kOrders) {
      ActivationBuffer<float> x(shape, order);
      for (std::int64_t k = 0; k < shape.samples(); ++k)
        for (std::int64_t c = 0; c < shape.channels; ++c) x.at(k, c) = 0.1f + 1000.0f * float(c);
      const auto got = moments_by<TypeParam>(x);
      for (std::int64_t c = 0; c < shape.channels; ++c)
        EXPECT_EQ(got.mean[std::size_t(c)], 0.1f + 1000.0f * float(c));
      for (const float entry : got.covariance) EXPECT_EQ(entry, 0);
    }
}

TYPED_TEST_P(MomentsContract, ABadValueReachesItsOwnChannelOnly) {
  for (const ActivationShape& shape : {ActivationShape{2, 12, 100, 3},
                                       {2, 15, 99, 5},
                                       {2, 64, 128, 2},
                                       {2, 64, 128, 4},
                                       {2, 64, 128, 16},
                                       {2, 128, 100, 2},
                                       {2, 140, 64, 2}})
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
      for (const Order order : kOrders)
        for (const std::int64_t sample :
             {std::int64_t(0), std::int64_t(37), std::int64_t(127), shape.samples() - 1}) {
          SCOPED_TRACE(name(shape, order) + ", sample " + std::to_string(sample));
          const std::int64_t d = shape.group_size(), channel = d + 1;  // group 1, place 1
          auto x = converted<float>(random_activations(shape, 16), order);
          const auto clean = moments_by<TypeParam>(x);
          x.at(sample, channel) = bad;
          const auto got = moments_by<TypeParam>(x);
          for (std::int64_t c = 0; c < shape.channels; ++c)
            EXPECT_EQ(std::isfinite(got.mean[std::size_t(c)]), c != channel);
          for (std::int64_t g = 0; g < shape.groups; ++g)
            for (std::int64_t i = 0; i < d; ++i)
              for (std::int64_t j = 0; j < d; ++j) {
                if (g == 1 && (i == 1 || j == 1))
                  EXPECT_FALSE(std::isfinite(got.entry(g, i, j)));
                else
                  EXPECT_EQ(got.entry(g, i, j), clean.entry(g, i, j));
              }
        }
}

TYPED_TEST_P(MomentsContract, NothingToAverage) {
  const std::vector<float> center(4, 0.0f);
  for (const Order order : kOrders)
    for (const ActivationShape& shape : {ActivationShape{0, 4, 5, 2}, {3, 4, 0, 1}}) {
      const ActivationBuffer<float> x(shape, order);
      const auto got = moments_by<TypeParam>(x, 0, TypeParam::ways().back());
      for (const float entry : got.mean) EXPECT_TRUE(std::isnan(entry));
      for (const float entry : got.covariance) EXPECT_TRUE(std::isnan(entry));
      for (const auto* about : {static_cast<const std::vector<float>*>(nullptr), &center}) {
        const auto cross = cross_moments_by<TypeParam>(x, x, about);
        for (const float entry : cross.mean) EXPECT_EQ(entry, 0);
        for (const float entry : cross.covariance) EXPECT_EQ(entry, 0);
      }
    }
  moments_by<TypeParam>(ActivationBuffer<float>({3, 0, 5, 1}, Order::contiguous));
}

TYPED_TEST_P(MomentsContract, PartialMomentsOfPiecesAddUpToThoseOfTheWhole) {
  const ActivationShape shape{7, 12, 60, 3};
  auto x = converted<float>(random_activations(shape, 17, 1e3), Order::contiguous);
  for (std::int64_t k = 3 * 60; k < shape.samples(); ++k)  // the pieces have different means
    for (std::int64_t c = 0; c < shape.channels; ++c) x.at(k, c) += 2;
  const auto expected = moments_by_reference(x);
  ActivationsIn<TypeParam::template Numbers, float> input(x);
  typename TypeParam::template Numbers<double> mean(expected.mean);
  for (const bool about_mean : {false, true}) {
    const double* shift = about_mean ? mean.data() : nullptr;
    std::vector<double> total(std::size_t(partial_moments_size(12, 3)), 0.0);
    for (const auto& [first, count] : {std::pair<int, int>{0, 3}, {3, 0}, {3, 4}}) {
      typename TypeParam::template Numbers<double> part(std::vector<double>(total.size(), -77.0));
      Activations<const float> piece = input.view();
      piece.data += first * 12 * 60;
      piece.batch = count;
      TypeParam::template partial_moments<float>(TypeParam::ways().back(), piece, shift,
                                                 part.data());
      const auto here = part.back();
      EXPECT_EQ(here[0], count * 60);
      for (std::size_t k = 0; k < total.size(); ++k) total[k] += here[k];
      for (std::size_t g = 0; g < 3; ++g)
        for (std::size_t i = 0; i < 4; ++i)
          for (std::size_t j = 0; j < i; ++j)
            EXPECT_EQ(here[13 + (g * 4 + i) * 4 + j], here[13 + (g * 4 + j) * 4 + i]);
    }
    typename TypeParam::template Numbers<double> sums(total);
    MomentsThere<TypeParam, float> got(shape);
    TypeParam::template moments_from_partial<float>(TypeParam::way(), sums.data(), shift,
                                                    got.mean(), got.matrices());
    expect_close(got.back(), expected);
    for (std::size_t c = 0; c < 12 && !about_mean; ++c)
      EXPECT_NEAR(total[1 + c] / double(shape.samples()), expected.mean[c],
                  kEps<float> * std::abs(expected.mean[c]));
  }
}

TYPED_TEST_P(MomentsContract, PartialMomentsOfNothingAreZeroAndGiveNaN) {
  const ActivationShape shape{0, 4, 5, 2};
  ActivationsIn<TypeParam::template Numbers, float> input(
      ActivationBuffer<float>(shape, Order::contiguous));
  typename TypeParam::template Numbers<double> sums(
      std::vector<double>(std::size_t(partial_moments_size(4, 2)), -77.0));
  TypeParam::template partial_moments<float>(TypeParam::way(), input.view(), nullptr, sums.data());
  for (const double entry : sums.back()) EXPECT_EQ(entry, 0);
  MomentsThere<TypeParam, float> there(shape);
  TypeParam::template moments_from_partial<float>(TypeParam::way(), sums.data(), nullptr,
                                                  there.mean(), there.matrices());
  const auto got = there.back();
  for (const float entry : got.mean) EXPECT_TRUE(std::isnan(entry));
  for (const float entry : got.covariance) EXPECT_TRUE(std::isnan(entry));
}

TYPED_TEST_P(MomentsContract, ErrorsNameWhatWasExpected) {
  std::vector<float> somewhere(100);  // is not read
  const auto matrices = [&](std::int64_t batch, std::int64_t n) {
    return contiguous<float>(somewhere.data(), batch, n);
  };
  const Activations<const float> uneven{somewhere.data(), 2, 10, 3, 4},
      even{somewhere.data(), 2, 10, 3, 5};
  const auto call = [&](const Activations<const float>& input, const Matrices<float>& covariance) {
    return error_of([&] {
      TypeParam::template moments<float>(TypeParam::way(), input, somewhere.data(), covariance);
    });
  };
  EXPECT_EQ(
      call(uneven, matrices(4, 2)),
      "keel::moments: expected input (N, C, S) with groups that divide C, got (2, 10, 3) in 4 "
      "groups");
  EXPECT_EQ(call(even, matrices(2, 5)),
            "keel::moments: expected covariance of shape (5, 2, 2), got (2, 5, 5)");
  Activations<const float> other = even;
  other.order = Order::channels_last;
  EXPECT_EQ(error_of([&] {
              TypeParam::template cross_moments<float>(TypeParam::way(), even, other, nullptr,
                                                       somewhere.data(), matrices(5, 2));
            }),
            "keel::cross_moments: expected right (2, 10, 3) in 5 groups, got (2, 10, 3) "
            "channels_last in 5 groups");
}

REGISTER_TYPED_TEST_SUITE_P(MomentsContract, FloatCovariancesThatFitDoNotOverflow,
                            BFloat16CovariancesThatFitDoNotOverflow,
                            AMeanOfTenThousandDeviationsCostsNothing,
                            SamplesFarFromTheOthersCostLittle, AMillionSamplesLoseNothing,
                            TheSameBitsEveryTime, ScaleWithTheData, ConstantChannelsHaveNoDeviation,
                            ABadValueReachesItsOwnChannelOnly, NothingToAverage,
                            PartialMomentsOfPiecesAddUpToThoseOfTheWhole,
                            PartialMomentsOfNothingAreZeroAndGiveNaN, ErrorsNameWhatWasExpected);

}  // namespace keel::testing
