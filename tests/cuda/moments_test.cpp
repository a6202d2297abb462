// The contract in keel/moments.h, on the GPU. Needs a GPU.

#include "keel/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "activations_on_device.h"
#include "support/batch.h"
#include "support/errors.h"
#include "support/moments.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename A>
class MomentsOnDevice {
 public:
  explicit MomentsOnDevice(const ActivationShape& shape)
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
  OnDevice<A> mean_, covariance_;
};

template <typename T>
Moments<Accumulator<T>> by_cuda(const ActivationBuffer<T>& x, std::size_t skip = 0) {
  ActivationsOnDevice<T> input(x, skip);
  MomentsOnDevice<Accumulator<T>> result(x.shape);
  cuda::moments<T>(input.view(), result.mean(), result.matrices());
  return result.back();
}

template <typename T>
Moments<double> by_cpu_in_float64(const ActivationBuffer<T>& x) {
  const auto exact = converted<double>(x, x.order);
  Moments<double> result(x.shape);
  cpu::moments<double>(exact.view(), result.mean.data(), result.matrices());
  return result;
}

template <typename T>
class CudaMomentsOf : public ::testing::Test {};
TYPED_TEST_SUITE(CudaMomentsOf, ElementTypes);

TYPED_TEST(CudaMomentsOf, MatchTheCpuInFloat64) {
  for (const ActivationShape& shape : device_shapes())
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<TypeParam>(random_activations(shape, 1), order);
      expect_close(by_cuda(x), by_cpu_in_float64(x));
    }
}

TYPED_TEST(CudaMomentsOf, MatchWhereverTheDataStarts) {
  for (const ActivationShape& shape :
       {ActivationShape{3, 64, 64, 1}, {3, 64, 64, 16}, {2, 128, 16, 1}})
    for (const Order order : kOrders)
      for (const std::size_t skip : {1, 2, 4}) {
        SCOPED_TRACE(name(shape, order) + ", " + std::to_string(skip) + " further on");
        const auto x = converted<TypeParam>(random_activations(shape, 2), order);
        expect_close(by_cuda(x, skip), by_cpu_in_float64(x));
      }
}

TYPED_TEST(CudaMomentsOf, CrossMomentsMatchTheCpuInFloat64) {
  using A = Accumulator<TypeParam>;
  for (const ActivationShape& shape : device_shapes())
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto left = converted<TypeParam>(random_activations(shape, 3), order);
      const auto right = converted<TypeParam>(random_activations(shape, 4), order);
      const std::vector<A> center = as<A>(Random(5).normals(shape.channels));
      ActivationsOnDevice<TypeParam> left_there(left), right_there(right);
      OnDevice<A> center_there(center);
      MomentsOnDevice<A> result(shape), uncentered(shape);
      cuda::cross_moments<TypeParam>(left_there.view(), right_there.view(), center_there.data(),
                                     result.mean(), result.matrices());
      cuda::cross_moments<TypeParam>(left_there.view(), right_there.view(), nullptr,
                                     uncentered.mean(), uncentered.matrices());

      auto left_exact = converted<double>(left, order),
           right_exact = converted<double>(right, order);
      auto centered = right_exact, size = right_exact;
      for (std::int64_t k = 0; k < shape.samples(); ++k)
        for (std::int64_t c = 0; c < shape.channels; ++c)
          centered.at(k, c) -= double(center[std::size_t(c)]);
      for (const bool with_center : {true, false}) {
        const auto& exact = with_center ? centered : right_exact;
        Moments<double> expected(shape), bound(shape);
        cpu::cross_moments<double>(left_exact.view(), exact.view(), nullptr, expected.mean.data(),
                                   expected.matrices());
        // The size of the summands. Rounding is measured against it, whatever cancels.
        auto left_size = left_exact, right_size = exact;
        for (double& entry : left_size.data) entry = std::abs(entry);
        for (double& entry : right_size.data) entry = std::abs(entry);
        cpu::cross_moments<double>(left_size.view(), right_size.view(), nullptr, bound.mean.data(),
                                   bound.matrices());
        const Moments<A> got = with_center ? result.back() : uncentered.back();
        for (std::size_t i = 0; i < got.mean.size(); ++i)
          ASSERT_NEAR(double(got.mean[i]), expected.mean[i], rounding<A>(2, bound.mean[i]));
        for (std::size_t i = 0; i < got.covariance.size(); ++i)
          ASSERT_NEAR(double(got.covariance[i]), expected.covariance[i],
                      rounding<A>(2, bound.covariance[i]))
              << i << (with_center ? ", centered" : "");
      }
    }
}

/// Full and partial slabs of narrow and wide groups, and a group of several parts.
const std::vector<ActivationShape> kShapesOfEveryKernel = {
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

template <typename T>
void expect_close_near_the_end_of_the_range() {
  for (const ActivationShape& shape : kShapesOfEveryKernel)
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = near_the_end_of_the_range<T>(shape, order);
      const auto got = by_cuda(x), again = by_cuda(x);
      expect_close(got, by_cpu_in_float64(x));
      EXPECT_TRUE(same_bits(got.mean, again.mean));
      EXPECT_TRUE(same_bits(got.covariance, again.covariance));
      // The mean is representable if the activations are.
      const auto huge = near_the_end_of_the_range<T>(shape, order, 1e18);
      const auto mean = by_cuda(huge).mean;
      const auto expected = by_cpu_in_float64(huge);
      for (std::size_t c = 0; c < mean.size(); ++c)
        ASSERT_NEAR(
            double(mean[c]), expected.mean[c],
            rounding<float>(0, std::abs(expected.mean[c]) + expected.deviation(std::int64_t(c))));
    }
}
TEST(CudaMoments, FloatCovariancesThatFitDoNotOverflow) {
  expect_close_near_the_end_of_the_range<float>();
}
TEST(CudaMoments, BFloat16CovariancesThatFitDoNotOverflow) {
  expect_close_near_the_end_of_the_range<BFloat16>();
}

TEST(CudaMoments, ABadValueAmongLargeOnesReachesItsOwnChannelOnly) {
  for (const ActivationShape& shape : {ActivationShape{2, 12, 100, 3}, {2, 64, 128, 2}})
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
      for (const Order order : kOrders) {
        SCOPED_TRACE(name(shape, order));
        const std::int64_t d = shape.group_size(), channel = d;  // whose column has the means
        auto x = near_the_end_of_the_range<float>(shape, order);
        for (std::int64_t k = 0; k < shape.samples(); ++k) x.at(k, channel + 2) *= 1e18f;
        const auto clean = by_cuda(x);
        EXPECT_TRUE(std::isfinite(clean.mean[std::size_t(channel + 2)]));
        x.at(57, channel) = bad;
        const auto got = by_cuda(x);
        for (std::int64_t c = 0; c < shape.channels; ++c) {
          if (c == channel)
            EXPECT_FALSE(std::isfinite(got.mean[std::size_t(c)]));
          else
            EXPECT_EQ(got.mean[std::size_t(c)], clean.mean[std::size_t(c)]);
        }
        for (std::int64_t g = 0; g < shape.groups; ++g)
          for (std::int64_t i = 0; i < d; ++i)
            for (std::int64_t j = 0; j < d; ++j) {
              if (g == 1 && (i == 0 || j == 0))
                EXPECT_FALSE(std::isfinite(got.entry(g, i, j)));
              else
                EXPECT_EQ(got.entry(g, i, j), clean.entry(g, i, j));
            }
      }
}

TEST(CudaMoments, CrossMomentsThatFitDoNotOverflow) {
  // Products of size 1e38, half of them negative, whose sum is representable.
  for (const ActivationShape& shape : kShapesOfEveryKernel)
    for (const Order order : kOrders)
      for (const bool centered : {false, true}) {
        SCOPED_TRACE(name(shape, order) + (centered ? ", centered" : ""));
        ActivationBuffer<float> left(shape, order), right(shape, order);
        const std::vector<float> center(std::size_t(shape.channels), centered ? 1e18f : 0.0f);
        const std::int64_t m = shape.samples();
        for (std::int64_t k = 0; k < m; ++k)
          for (std::int64_t c = 0; c < shape.channels; ++c) {
            left.at(k, c) = 1e19f + 1e17f * float(c % 5);
            right.at(k, c) = (2 * k < m - 1 ? 1e19f : -1e19f) + center[std::size_t(c)];
          }
        ActivationsOnDevice<float> left_there(left), right_there(right);
        OnDevice<float> center_there(center);
        MomentsOnDevice<float> result(shape);
        cuda::cross_moments<float>(left_there.view(), right_there.view(),
                                   centered ? center_there.data() : nullptr, result.mean(),
                                   result.matrices());
        const auto left_exact = converted<double>(left, order),
                   right_exact = converted<double>(right, order);
        const std::vector<double> center_exact = as<double>(center);
        Moments<double> expected(shape);
        reference::cross_moments(left_exact.view(), right_exact.view(), center_exact.data(),
                                 expected.mean.data(), expected.matrices());
        const Moments<float> got = result.back();
        for (std::size_t i = 0; i < got.mean.size(); ++i)
          ASSERT_NEAR(double(got.mean[i]), expected.mean[i],
                      rounding<float>(2, std::abs(expected.mean[i])));
        for (std::size_t i = 0; i < got.covariance.size(); ++i)
          ASSERT_NEAR(double(got.covariance[i]), expected.covariance[i],
                      rounding<float>(2, 1.1e38 * double(m)))
              << i;
      }
}

TEST(CudaMoments, AMeanOfTenThousandDeviationsCostsNothing) {
  for (const ActivationShape& shape : {ActivationShape{16, 32, 81, 2},
                                       {3, 8, 2000, 2},
                                       {700, 5, 1, 1},
                                       {4, 64, 1024, 1},
                                       {4, 64, 256, 16},
                                       {4, 128, 196, 1}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<float>(random_activations(shape, 11, 1e4), order);
      expect_close(by_cuda(x), by_cpu_in_float64(x));
    }
}

TEST(CudaMoments, ALayersActivations) {
  for (const std::int64_t groups : {1, 4, 16}) {
    const ActivationShape shape{128, 64, 1024, groups};
    SCOPED_TRACE(name(shape, Order::contiguous));
    const auto drawn = random_activations(shape, 20);
    const auto x = converted<float>(drawn, Order::contiguous);
    expect_close(by_cuda(x), by_cpu_in_float64(x));
    const auto coarse = converted<BFloat16>(drawn, Order::channels_last);
    expect_close(by_cuda(coarse), by_cpu_in_float64(coarse));
  }
}

TEST(CudaMoments, SamplesFarFromTheOthersCostLittle) {
  const ActivationShape shape{8, 4, 400, 1};
  for (const Order order : kOrders) {
    auto x = converted<float>(random_activations(shape, 12, 1e4), order);
    for (std::int64_t c = 0; c < shape.channels; ++c) x.at(0, c) = 0;
    expect_close(by_cuda(x), by_cpu_in_float64(x));
  }
}

TEST(CudaMoments, AMillionSamplesLoseNothing) {
  // Long enough that a block folds its sums twice. (With full slabs, a layer of many channels does.)
  for (const ActivationShape& shape : {ActivationShape{4, 3, 300000, 1}, {4, 8, 300000, 1}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<float>(random_activations(shape, 13), order);
      const auto got = by_cuda(x);
      const auto expected = by_cpu_in_float64(x);
      for (std::int64_t i = 0; i < shape.channels; ++i)
        for (std::int64_t j = 0; j < shape.channels; ++j)
          EXPECT_NEAR(got.entry(0, i, j), expected.entry(0, i, j),
                      2 * kEps<float> * expected.deviation(i) * expected.deviation(j));
    }
}

/// So many channels that a block has all samples of some of them, and folds its sums twice.
template <typename T>
ActivationBuffer<T> many_channels(std::int64_t samples, Order order) {
  const ActivationShape shape{2, 132 * 64, samples / 2, 132 * 16};
  ActivationBuffer<T> x(shape, order);
  Random random(22);
  std::vector<T> drawn(4099);
  for (T& entry : drawn) entry = from_double<T>(random.normal());
  for (std::size_t i = 0; i < x.data.size(); ++i) x.data[i] = drawn[i * 31 % drawn.size()];
  return x;
}

TEST(CudaMoments, ManyChannelsLoseNothing) {
  for (const Order order : kOrders) {
    const auto x = many_channels<float>(4200, order);
    SCOPED_TRACE(name(x.shape, order));
    expect_close(by_cuda(x), by_cpu_in_float64(x));
  }
}

TEST(CudaMoments, CrossMomentsOfManyChannelsLoseNothing) {
  // 33 rounds of four tiles: 16-bit numbers are folded after 32.
  for (const Order order : kOrders) {
    const auto x = many_channels<BFloat16>(4224, order);
    SCOPED_TRACE(name(x.shape, order));
    const ActivationShape& shape = x.shape;
    ActivationsOnDevice<BFloat16> input(x);
    MomentsOnDevice<float> result(shape);
    cuda::cross_moments<BFloat16>(input.view(), input.view(), nullptr, result.mean(),
                                  result.matrices());
    const auto got = result.back();
    const auto moments = by_cpu_in_float64(x);
    const std::int64_t d = shape.group_size();
    const auto m = double(shape.samples());
    for (std::int64_t c = 0; c < shape.channels; ++c)
      for (std::int64_t j = 0; j < d; ++j) {
        const std::int64_t other = c / d * d + j;
        const double both = moments.mean[std::size_t(c)] * moments.mean[std::size_t(other)];
        ASSERT_NEAR(got.entry(c / d, c % d, j), m * (moments.entry(c / d, c % d, j) + both),
                    rounding<float>(
                        2, m * (moments.deviation(c) * moments.deviation(other) + std::abs(both))));
      }
  }
}

TEST(CudaMoments, TheSameBitsEveryTime) {
  for (const ActivationShape& shape :
       {ActivationShape{8, 64, 900, 1}, {8, 64, 900, 16}, {2, 260, 300, 1}, {4, 384, 49, 6}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<float>(random_activations(shape, 14), order);
      ActivationsOnDevice<float> input(x);
      const auto once = by_cuda(x);
      MomentsOnDevice<float> cross_once(shape);
      cuda::cross_moments<float>(input.view(), input.view(), nullptr, cross_once.mean(),
                                 cross_once.matrices());
      for (int repeat = 0; repeat < 4; ++repeat) {
        const auto again = by_cuda(x);
        EXPECT_TRUE(same_bits(once.mean, again.mean));
        EXPECT_TRUE(same_bits(once.covariance, again.covariance));
        MomentsOnDevice<float> cross(shape);
        cuda::cross_moments<float>(input.view(), input.view(), nullptr, cross.mean(),
                                   cross.matrices());
        EXPECT_TRUE(same_bits(cross_once.back().covariance, cross.back().covariance));
        EXPECT_TRUE(same_bits(cross_once.back().mean, cross.back().mean));
      }
    }
}

TEST(CudaMoments, ScaleWithTheData) {
  for (const ActivationShape& shape : {ActivationShape{3, 20, 100, 2}, {3, 64, 100, 1}}) {
    const auto x = converted<float>(random_activations(shape, 15), Order::contiguous);
    const auto once = by_cuda(x);
    for (const int exponent : {-50, 50}) {
      auto scaled = x;
      for (float& entry : scaled.data) entry = std::ldexp(entry, exponent);
      const auto got = by_cuda(scaled);
      for (std::size_t i = 0; i < once.mean.size(); ++i)
        EXPECT_EQ(got.mean[i], std::ldexp(once.mean[i], exponent));
      for (std::size_t i = 0; i < once.covariance.size(); ++i)
        EXPECT_EQ(got.covariance[i], std::ldexp(once.covariance[i], 2 * exponent));
    }
  }
}

TEST(CudaMoments, ConstantChannelsHaveNoDeviation) {
  for (const ActivationShape& shape : {ActivationShape{5, 6, 77, 1}, {3, 70, 50, 1}})
    for (const Order order : kOrders) {
      ActivationBuffer<float> x(shape, order);
      for (std::int64_t k = 0; k < shape.samples(); ++k)
        for (std::int64_t c = 0; c < shape.channels; ++c) x.at(k, c) = 0.1f + 1000.0f * float(c);
      const auto got = by_cuda(x);
      for (std::int64_t c = 0; c < shape.channels; ++c)
        EXPECT_EQ(got.mean[std::size_t(c)], 0.1f + 1000.0f * float(c));
      for (const float entry : got.covariance) EXPECT_EQ(entry, 0);
    }
}

TEST(CudaMoments, ABadValueReachesItsOwnChannelOnly) {
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
        for (const std::int64_t sample : {0, 37, 127}) {
          SCOPED_TRACE(name(shape, order));
          const std::int64_t d = shape.group_size(), channel = d + 1;  // group 1, place 1
          auto x = converted<float>(random_activations(shape, 16), order);
          const auto clean = by_cuda(x);
          x.at(sample, channel) = bad;
          const auto got = by_cuda(x);
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

/// Slabs in which some groups have large means and some have not: these are summed in different ways.
template <typename T>
void expect_groups_of_both_kinds() {
  for (const ActivationShape& shape : {ActivationShape{4, 64, 99, 2},
                                       {4, 64, 128, 4},
                                       {3, 128, 77, 8},
                                       {3, 128, 49, 32},
                                       {40, 64, 1056, 4}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const std::int64_t d = shape.group_size();
      const auto drawn = random_activations(shape, 23, 0.5);
      const auto x = converted<T>(drawn, order);
      auto moved = x;
      for (std::int64_t k = 0; k < shape.samples(); ++k)
        for (std::int64_t c = d; c < 2 * d; ++c)
          moved.at(k, c) = from_double<T>(drawn.at(k, c) + 30);
      const auto got = by_cuda(x), got_moved = by_cuda(moved);
      expect_close(got, by_cpu_in_float64(x));
      expect_close(got_moved, by_cpu_in_float64(moved));
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        if (c / d == 1) continue;
        ASSERT_EQ(got.mean[std::size_t(c)], got_moved.mean[std::size_t(c)]);
        for (std::int64_t j = 0; j < d; ++j)
          ASSERT_EQ(got.entry(c / d, c % d, j), got_moved.entry(c / d, c % d, j)) << c << ", " << j;
      }
    }
}
TEST(CudaMoments, GroupsOfBothKindsInASlabOfBFloat16) { expect_groups_of_both_kinds<BFloat16>(); }
TEST(CudaMoments, GroupsOfBothKindsInASlabOfHalf) { expect_groups_of_both_kinds<Half>(); }

TEST(CudaMoments, CanBeCapturedInAGraph) {
  for (const Order order : kOrders) {
    const ActivationShape shape{4, 64, 300, 2};
    const auto x = converted<float>(random_activations(shape, 17), order);
    ActivationsOnDevice<float> input(x);
    MomentsOnDevice<float> result(shape), cross(shape), cross_plain(shape);
    run_as_graph([&](const Stream& stream) {
      cuda::moments<float>(input.view(), result.mean(), result.matrices(), stream);
      cuda::cross_moments<float>(input.view(), input.view(), nullptr, cross.mean(),
                                 cross.matrices(), stream);
    });
    cuda::cross_moments<float>(input.view(), input.view(), nullptr, cross_plain.mean(),
                               cross_plain.matrices());
    const auto plain = by_cuda(x);
    EXPECT_TRUE(same_bits(result.back().mean, plain.mean));
    EXPECT_TRUE(same_bits(result.back().covariance, plain.covariance));
    EXPECT_TRUE(same_bits(cross.back().covariance, cross_plain.back().covariance));
  }
}

TEST(CudaMoments, TakesScratchFromTheStream) {
  const ActivationShape shape{2, 8, 30, 2};
  const auto x = converted<float>(random_activations(shape, 18), Order::contiguous);
  ActivationsOnDevice<float> input(x);
  MomentsOnDevice<float> result(shape);
  int held = 0, taken = 0;
  Stream stream;
  stream.allocate = [&](std::size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    ++held, ++taken;
    return memory;
  };
  stream.release = [&](void* memory) {
    --held;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cudaFree(memory);
  };
  cuda::moments<float>(input.view(), result.mean(), result.matrices(), stream);
  EXPECT_GT(taken, 0);
  EXPECT_EQ(held, 0);
  EXPECT_TRUE(same_bits(result.back().covariance, by_cuda(x).covariance));
}

TEST(CudaMoments, NothingToAverage) {
  for (const Order order : kOrders)
    for (const ActivationShape& shape : {ActivationShape{0, 4, 5, 2}, {3, 4, 0, 1}}) {
      const ActivationBuffer<float> x(shape, order);
      const auto got = by_cuda(x);
      for (const float entry : got.mean) EXPECT_TRUE(std::isnan(entry));
      for (const float entry : got.covariance) EXPECT_TRUE(std::isnan(entry));
      ActivationsOnDevice<float> input(x);
      MomentsOnDevice<float> cross(shape);
      cuda::cross_moments<float>(input.view(), input.view(), nullptr, cross.mean(),
                                 cross.matrices());
      for (const float entry : cross.back().mean) EXPECT_EQ(entry, 0);
      for (const float entry : cross.back().covariance) EXPECT_EQ(entry, 0);
    }
  by_cuda(ActivationBuffer<float>({3, 0, 5, 1}, Order::contiguous));
}

TEST(CudaMoments, PartialMomentsOfPiecesAddUpToThoseOfTheWhole) {
  const ActivationShape shape{7, 12, 60, 3};
  auto x = converted<float>(random_activations(shape, 19, 1e3), Order::contiguous);
  for (std::int64_t k = 3 * 60; k < shape.samples(); ++k)  // the pieces have different means
    for (std::int64_t c = 0; c < shape.channels; ++c) x.at(k, c) += 2;
  const auto expected = by_cpu_in_float64(x);
  ActivationsOnDevice<float> input(x);
  OnDevice<double> mean(expected.mean);
  for (const double* shift : {(const double*)nullptr, (const double*)mean.data()}) {
    std::vector<double> total(std::size_t(partial_moments_size(12, 3)), 0.0);
    for (const auto& [first, count] : {std::pair<int, int>{0, 3}, {3, 0}, {3, 4}}) {
      OnDevice<double> part(std::vector<double>(total.size(), -77.0));
      Activations<const float> piece = input.view();
      piece.data += first * 12 * 60;
      piece.batch = count;
      cuda::partial_moments<float>(piece, shift, part.data());
      const auto here = part.back();
      EXPECT_EQ(here[0], count * 60);
      for (std::size_t k = 0; k < total.size(); ++k) total[k] += here[k];
      for (std::size_t g = 0; g < 3; ++g)
        for (std::size_t i = 0; i < 4; ++i)
          for (std::size_t j = 0; j < 4; ++j)
            EXPECT_EQ(here[13 + (g * 4 + i) * 4 + j], here[13 + (g * 4 + j) * 4 + i]);
    }
    OnDevice<double> sums(total);
    MomentsOnDevice<float> got(shape);
    cuda::moments_from_partial(sums.data(), shift, got.mean(), got.matrices());
    expect_close(got.back(), expected);
  }
}

TEST(CudaMoments, PartialMomentsThatFitDoNotOverflow) {
  for (const ActivationShape& shape : {ActivationShape{3, 15, 150, 5}, {4, 64, 256, 1}}) {
    const auto x = near_the_end_of_the_range<float>(shape, Order::contiguous, 1e18);
    ActivationsOnDevice<float> input(x);
    const std::int64_t channels = shape.channels, d = shape.group_size();
    OnDevice<double> sums(
        std::vector<double>(std::size_t(partial_moments_size(channels, shape.groups))));
    cuda::partial_moments<float>(input.view(), nullptr, sums.data());
    const std::vector<double> here = sums.back(), about(here.size(), 0.0);
    Moments<double> got(shape);
    cpu::moments_from_partial(here.data(), about.data(), got.mean.data(), got.matrices());
    const auto expected = by_cpu_in_float64(x);
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t j = 0; j < d; ++j)
        ASSERT_NEAR(got.entry(c / d, c % d, j), expected.entry(c / d, c % d, j),
                    rounding<float>(2, expected.deviation(c) * expected.deviation(c / d * d + j)));
  }
}

TEST(CudaMoments, ErrorsNameWhatWasExpected) {
  float somewhere = 0;  // no kernel is launched
  const Activations<const float> uneven{&somewhere, 2, 10, 3, 4}, even{&somewhere, 2, 10, 3, 5};
  EXPECT_EQ(
      error_of([&] { cuda::moments<float>(uneven, nullptr, contiguous<float>(&somewhere, 4, 2)); }),
      "keel::moments: expected input (N, C, S) with groups that divide C, got (2, 10, 3) in "
      "4 groups");
  EXPECT_EQ(
      error_of([&] { cuda::moments<float>(even, nullptr, contiguous<float>(&somewhere, 2, 5)); }),
      "keel::moments: expected covariance of shape (5, 2, 2), got (2, 5, 5)");
  Activations<const float> other = even;
  other.order = Order::channels_last;
  EXPECT_EQ(error_of([&] {
              cuda::cross_moments<float>(even, other, nullptr, nullptr,
                                         contiguous<float>(&somewhere, 5, 2));
            }),
            "keel::cross_moments: expected right (2, 10, 3) in 5 groups, got (2, 10, 3) "
            "channels_last in 5 groups");
}

}  // namespace
}  // namespace keel::testing
