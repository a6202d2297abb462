#include "keel/affine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "keel/moments.h"
#include "support/activations.h"
#include "support/affine.h"
#include "support/errors.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
class AffineOf : public ::testing::Test {};
TYPED_TEST_SUITE(AffineOf, ElementTypes);

TYPED_TEST(AffineOf, MatchesReference) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const ActivationShape& shape : activation_shapes())
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<T>(random_activations(shape, 31), order);
      const Coefficients<A> given(shape);
      const Coefficients<double> exact(given);
      const auto x_exact = converted<double>(x, order);
      ActivationBuffer<T> got(shape, order);
      ActivationBuffer<double> expected(shape, order);
      cpu::affine<T>(given.per_group(given.matrix), given.mean.data(), given.bias.data(), x.view(),
                     got.view());
      reference::affine(exact.per_group(exact.matrix), exact.mean.data(), exact.bias.data(),
                        x_exact.view(), expected.view());
      const double size = 4 * std::sqrt(double(shape.group_size())) + 4;
      expect_close(got, expected, shape.group_size(), size);

      cpu::affine<T>(given.per_group(given.matrix), nullptr, nullptr, x.view(), got.view());
      reference::affine(exact.per_group(exact.matrix), nullptr, nullptr, x_exact.view(),
                        expected.view());
      expect_close(got, expected, shape.group_size(), size);
    }
}

TYPED_TEST(AffineOf, BackwardMatchesReference) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const ActivationShape& shape : activation_shapes())
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<T>(random_activations(shape, 32), order);
      const auto dL_doutput = converted<T>(random_activations(shape, 33), order);
      Coefficients<A> given(shape);
      // Scaled so that both halves of the sum have similar size.
      for (A& entry : given.gradient) entry *= A(shape.samples()) / 2;
      for (A& entry : given.bias) entry *= A(shape.samples());
      const Coefficients<double> exact(given);
      const auto x_exact = converted<double>(x, order);
      const auto dL_doutput_exact = converted<double>(dL_doutput, order);
      ActivationBuffer<T> got(shape, order);
      ActivationBuffer<double> expected(shape, order);
      const double size = 6 * std::sqrt(double(shape.group_size())) + 4;
      cpu::affine_backward<T>(given.per_group(given.matrix), dL_doutput.view(),
                              given.per_group(given.gradient), given.bias.data(), x.view(),
                              given.mean.data(), got.view());
      reference::affine_backward(exact.per_group(exact.matrix), dL_doutput_exact.view(),
                                 exact.per_group(exact.gradient), exact.bias.data(), x_exact.view(),
                                 exact.mean.data(), expected.view());
      expect_close(got, expected, 2 * shape.group_size(), size);

      // A layer in evaluation passes only the matrix.
      cpu::affine_backward<T>(given.per_group(given.matrix), dL_doutput.view(), {}, nullptr, {},
                              nullptr, got.view());
      reference::affine_backward(exact.per_group(exact.matrix), dL_doutput_exact.view(), {},
                                 nullptr, {}, nullptr, expected.view());
      expect_close(got, expected, 2 * shape.group_size(), size);
    }
}

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

TEST(Affine, CenteringFirstKeepsAccuracyUnderALargeMean) {
  const ActivationShape shape{2, 32, 100, 1};
  for (const Order order : kOrders) {
    const auto x = converted<float>(random_activations(shape, 36, 1e4), order);
    Coefficients<float> given(shape);
    std::vector<float> covariance(32 * 32);
    cpu::moments<float>(x.view(), given.mean.data(), contiguous(covariance.data(), 1, 32));
    const Coefficients<double> exact(given);
    const auto x_exact = converted<double>(x, order);
    ActivationBuffer<float> got(shape, order);
    ActivationBuffer<double> expected(shape, order);
    cpu::affine<float>(given.per_group(given.matrix), given.mean.data(), given.bias.data(),
                       x.view(), got.view());
    reference::affine(exact.per_group(exact.matrix), exact.mean.data(), exact.bias.data(),
                      x_exact.view(), expected.view());
    for (std::size_t i = 0; i < got.data.size(); ++i)
      ASSERT_NEAR(double(got.data[i]), expected.data[i], summation_error<float>(32, 30));
  }
}

TEST(Affine, TheSameBitsOnAnyNumberOfThreads) {
  for (const ActivationShape& shape :
       {ActivationShape{8, 64, 900, 1}, {8, 64, 900, 16}, {2, 260, 300, 1}, {4, 384, 49, 6}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<float>(random_activations(shape, 37), order);
      const Coefficients<float> given(shape);
      const auto forward = [&](const Executor& executor) {
        ActivationBuffer<float> y(shape, order);
        cpu::affine<float>(given.per_group(given.matrix), given.mean.data(), given.bias.data(),
                           x.view(), y.view(), executor);
        return y.data;
      };
      const auto backward = [&](const Executor& executor) {
        ActivationBuffer<float> y(shape, order);
        cpu::affine_backward<float>(given.per_group(given.matrix), x.view(),
                                    given.per_group(given.gradient), given.bias.data(), x.view(),
                                    given.mean.data(), y.view(), executor);
        return y.data;
      };
      for (const int count : {2, 5}) {
        EXPECT_EQ(forward(serial()), forward(threads(count)));
        EXPECT_EQ(backward(serial()), backward(threads(count)));
      }
    }
}

TEST(Affine, ABadValueStaysInItsSampleAndGroup) {
  const ActivationShape shape{2, 12, 50, 3};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const Order order : kOrders) {
      auto x = converted<float>(random_activations(shape, 38), order);
      const Coefficients<float> given(shape);
      ActivationBuffer<float> clean(shape, order), got(shape, order);
      const auto apply = [&](ActivationBuffer<float>& y) {
        cpu::affine<float>(given.per_group(given.matrix), given.mean.data(), given.bias.data(),
                           x.view(), y.view());
      };
      apply(clean);
      const std::int64_t sample = 61, channel = 6;
      x.at(sample, channel) = bad;
      apply(got);
      for (std::int64_t k = 0; k < shape.samples(); ++k)
        for (std::int64_t c = 0; c < shape.channels; ++c) {
          if (k == sample && c / 4 == channel / 4)
            EXPECT_FALSE(std::isfinite(got.at(k, c)));
          else
            EXPECT_EQ(got.at(k, c), clean.at(k, c)) << k << ", " << c;
        }
    }
}

TEST(Affine, NothingToDo) {
  for (const ActivationShape& shape : {ActivationShape{0, 4, 5, 2}, {3, 4, 0, 1}, {3, 0, 5, 1}}) {
    SCOPED_TRACE(name(shape, Order::contiguous));
    const Coefficients<float> given(shape);
    const ActivationBuffer<float> x(shape, Order::contiguous);
    // Empty outputs in the middle of other memory.
    const std::vector<float> poison(64, -77.0f);
    std::vector<float> memory = poison;
    Activations<float> y = ActivationBuffer<float>(shape, Order::contiguous).view();
    y.data = memory.data() + 32;
    EXPECT_NO_THROW(
        cpu::affine<float>(given.per_group(given.matrix), nullptr, nullptr, x.view(), y));
    EXPECT_TRUE(bitwise_equal(memory, poison));
    EXPECT_NO_THROW(cpu::affine_backward<float>(given.per_group(given.matrix), x.view(),
                                                given.per_group(given.gradient), given.bias.data(),
                                                x.view(), given.mean.data(), y));
    EXPECT_TRUE(bitwise_equal(memory, poison));
  }
}

TEST(Affine, ErrorsNameWhatWasExpected) {
  std::vector<float> data(60), out(60), matrix(100);
  const Activations<const float> input{data.data(), 2, 10, 3, 5};
  EXPECT_EQ(error_of([&] {
              cpu::affine<float>(contiguous<const float>(matrix.data(), 1, 10), nullptr, nullptr,
                                 input, Activations<float>{out.data(), 2, 10, 3, 5});
            }),
            "keel::affine: expected matrix of shape (5, 2, 2), got (1, 10, 10)");
  EXPECT_EQ(error_of([&] {
              cpu::affine<float>(contiguous<const float>(matrix.data(), 5, 2), nullptr, nullptr,
                                 input, Activations<float>{out.data(), 2, 5, 6, 5});
            }),
            "keel::affine: expected output (2, 10, 3) in 5 groups, got (2, 5, 6) in 5 groups");
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

/// The kernels convert in vectors. Tests every bit pattern, times factors that cause every kind of rounding.
template <typename T, typename Round>
void check_every_pattern(const Round& round) {
  const ActivationShape shape{1, 1, 65536, 1};
  ActivationBuffer<T> x(shape, Order::contiguous), y(shape, Order::contiguous);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) x.data[bits] = T{std::uint16_t(bits)};
  for (const float factor : {1.0f, 0.7f, 1.0f / 3, 1.5f, 1e-3f, 0x1p-13f, 0x1.8p-9f, 4.0f}) {
    cpu::affine<T>(contiguous(&factor, 1, 1), nullptr, nullptr, x.view(), y.view());
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const float product = 0.0f + factor * to_float(x.data[bits]);
      if (std::isnan(product))
        ASSERT_TRUE(std::isnan(to_float(y.data[bits]))) << bits << " by " << factor;
      else
        // The zero bias is added, so a negative zero appears only if the result rounds to it.
        ASSERT_EQ(y.data[bits].bits, round(product).bits) << bits << " by " << factor;
    }
  }
}

TEST(HalfTypes, KernelsConvertEveryHalf) { check_every_pattern<Half>(to_half); }
TEST(HalfTypes, KernelsConvertEveryBFloat16) { check_every_pattern<BFloat16>(to_bfloat16); }

}  // namespace
}  // namespace keel::testing
