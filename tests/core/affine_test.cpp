#include "keel/affine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "keel/moments.h"
#include "support/affine_contract.h"

namespace keel::testing {
namespace {

TEST(Affine, BackwardIsTheDerivativeOfTheWholeChain) {
  // L = sum W o (A (X - mean(X)) + bias) + sum G o Cov(X), as in a layer.
  for (const Order order : kOrders) {
    const ActivationShape shape{3, 6, 5, 2};
    const std::int64_t d = shape.group_size();
    auto x = converted<double>(random_activations(shape, 34), order);
    const auto weights = converted<double>(random_activations(shape, 35), order);
    const Coefficients<double> given(shape);
    std::vector<double> mean(6), covariance(18), sum(6), cross(18);
    const auto loss = [&] {
      cpu::moments<double>(x.view(), mean.data(), contiguous(covariance.data(), 2, d));
      ActivationBuffer<double> y(shape, order);
      cpu::affine<double>(given.per_group(given.matrix), mean.data(), given.bias.data(), x.view(),
                          y.view());
      double total = 0;
      for (std::size_t i = 0; i < y.data.size(); ++i) total += weights.data[i] * y.data[i];
      for (std::size_t i = 0; i < covariance.size(); ++i)
        total += given.gradient[i] * covariance[i];
      return total;
    };
    loss();
    cpu::cross_moments<double>(weights.view(), x.view(), mean.data(), sum.data(),
                               contiguous(cross.data(), 2, d));
    std::vector<double> dL_dmean(6);
    for (std::int64_t c = 0; c < 6; ++c)
      for (std::int64_t j = 0; j < d; ++j)
        dL_dmean[std::size_t(c)] -= given.matrix[std::size_t((c / d * d + j) * d + c % d)] *
                                    sum[std::size_t(c / d * d + j)];
    ActivationBuffer<double> dL_dinput(shape, order);
    cpu::affine_backward<double>(given.per_group(given.matrix), weights.view(),
                                 given.per_group(given.gradient), dL_dmean.data(), x.view(),
                                 mean.data(), dL_dinput.view());
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      const double here = x.data[i], step = 1e-4;
      x.data[i] = here + step;
      const double above = loss();
      x.data[i] = here - step;
      const double below = loss();
      x.data[i] = here;
      EXPECT_NEAR((above - below) / (2 * step), dL_dinput.data[i], 1e-9);
    }
    // The cross moments are the gradients of the matrix and the bias.
    Coefficients<double> moved(given);
    const auto output_loss = [&] {
      ActivationBuffer<double> y(shape, order);
      cpu::affine<double>(moved.per_group(moved.matrix), mean.data(), moved.bias.data(), x.view(),
                          y.view());
      double total = 0;
      for (std::size_t i = 0; i < y.data.size(); ++i) total += weights.data[i] * y.data[i];
      return total;
    };
    cpu::moments<double>(x.view(), mean.data(), contiguous(covariance.data(), 2, d));
    const auto check = [&](double& entry, double expected) {
      const double here = entry, step = 1e-3;
      entry = here + step;
      const double above = output_loss();
      entry = here - step;
      const double below = output_loss();
      entry = here;
      EXPECT_NEAR((above - below) / (2 * step), expected, 1e-10 * (1 + std::abs(expected)));
    };
    for (std::size_t i = 0; i < cross.size(); ++i) check(moved.matrix[i], cross[i]);
    for (std::size_t i = 0; i < sum.size(); ++i) check(moved.bias[i], sum[i]);
  }
}

TEST(HalfTypes, HalfRoundsToTheNearestEven) {
  const auto next = [](float x, float towards) { return std::nextafter(x, towards); };
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const Half low{std::uint16_t(bits)}, high{std::uint16_t(bits + 1)};
    const float a = to_float(low), b = to_float(high);
    ASSERT_LT(a, b);
    const float middle = a + (b - a) / 2;  // exact: a float has bits to spare
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(to_half(a).bits, bits);
    ASSERT_EQ(to_half(middle).bits, even);
    ASSERT_EQ(to_half(next(middle, a)).bits, bits);
    ASSERT_EQ(to_half(next(middle, b)).bits, bits + 1);
    ASSERT_EQ(to_half(-middle).bits, even | 0x8000);
  }
  EXPECT_EQ(to_float(Half{0x3c00}), 1.0f);
  EXPECT_EQ(to_float(Half{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(Half{0x7bff}), 65504.0f);
  EXPECT_EQ(to_half(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_half(1e30f).bits, 0x7c00);
  EXPECT_EQ(to_half(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(to_float(to_half(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(HalfTypes, BFloat16RoundsToTheNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const BFloat16 low{std::uint16_t(bits)}, high{std::uint16_t(bits + 1)};
    const float a = to_float(low), b = to_float(high);
    ASSERT_LT(a, b);
    const float middle = a + (b - a) / 2;
    ASSERT_EQ(to_bfloat16(a).bits, bits);
    ASSERT_EQ(to_bfloat16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(to_bfloat16(std::nextafter(middle, a)).bits, bits);
    ASSERT_EQ(to_bfloat16(std::nextafter(middle, b)).bits, bits + 1);
  }
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(to_bfloat16(3.4e38f).bits, 0x7f80);
}

using AffineOnCpu = OnEveryElement<Cpu>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCpu, AffineContractOf, AffineOnCpu);
INSTANTIATE_TYPED_TEST_SUITE_P(OnCpu, AffineContract, Cpu);

}  // namespace
}  // namespace keel::testing
