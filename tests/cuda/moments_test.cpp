// The contract in keel/moments.h, on the GPU. Needs a GPU.

#include "keel/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda_backend.h"
#include "support/moments_contract.h"

namespace keel::testing {
namespace {

template <typename A>
using MomentsOnDevice = MomentsThere<Cuda, A>;

template <typename T>
Moments<double> by_cpu_in_float64(const ActivationBuffer<T>& x) {
  const auto exact = converted<double>(x, x.order);
  Moments<double> result(x.shape);
  cpu::moments<double>(exact.view(), result.mean.data(), result.matrices());
  return result;
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
        const auto clean = moments_by<Cuda>(x);
        EXPECT_TRUE(std::isfinite(clean.mean[std::size_t(channel + 2)]));
        x.at(57, channel) = bad;
        const auto got = moments_by<Cuda>(x);
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

TEST(CudaMoments, ALayersActivations) {
  for (const std::int64_t groups : {1, 4, 16}) {
    const ActivationShape shape{128, 64, 1024, groups};
    SCOPED_TRACE(name(shape, Order::contiguous));
    const auto drawn = random_activations(shape, 20);
    const auto x = converted<float>(drawn, Order::contiguous);
    expect_close(moments_by<Cuda>(x), by_cpu_in_float64(x));
    const auto coarse = converted<BFloat16>(drawn, Order::channels_last);
    expect_close(moments_by<Cuda>(coarse), by_cpu_in_float64(coarse));
  }
}

// With 3 or 8 channels a block folds its sums twice. (With full slabs, a layer of many channels does.)
TEST(CudaMoments, AMillionSamplesOfEightChannelsLoseNothing) {
  expect_a_million_samples_lose_nothing<Cuda>(8);
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
    expect_close(moments_by<Cuda>(x), by_cpu_in_float64(x));
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
      const auto got = moments_by<Cuda>(x), got_moved = moments_by<Cuda>(moved);
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
    const auto plain = moments_by<Cuda>(x);
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
  EXPECT_TRUE(same_bits(result.back().covariance, moments_by<Cuda>(x).covariance));
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

using MomentsOnCuda = OnEveryElement<Cuda>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCuda, MomentsContractOf, MomentsOnCuda);
INSTANTIATE_TYPED_TEST_SUITE_P(OnCuda, MomentsContract, Cuda);

}  // namespace
}  // namespace keel::testing
