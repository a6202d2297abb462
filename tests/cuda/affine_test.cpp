// The contract in keel/affine.h, on the GPU. Needs a GPU.

#include "keel/affine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "activations_on_device.h"
#include "keel/moments.h"
#include "support/affine.h"
#include "support/errors.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename A>
struct CoefficientsOnDevice {
  OnDevice<A> matrix, gradient, mean, bias;
  ActivationShape shape;
  explicit CoefficientsOnDevice(const Coefficients<A>& c)
      : matrix(c.matrix), gradient(c.gradient), mean(c.mean), bias(c.bias), shape(c.shape) {}
  Matrices<const A> per_group(OnDevice<A>& data) {
    return contiguous<const A>(data.data(), shape.groups, shape.group_size());
  }
};

template <typename T>
ActivationBuffer<T> forward(const Coefficients<Accumulator<T>>& given, const ActivationBuffer<T>& x,
                            bool center_and_bias = true, std::size_t skip = 0) {
  CoefficientsOnDevice<Accumulator<T>> there(given);
  ActivationsOnDevice<T> input(x, skip), output(x.shape, x.order, skip);
  cuda::affine<T>(there.per_group(there.matrix), center_and_bias ? there.mean.data() : nullptr,
                  center_and_bias ? there.bias.data() : nullptr, input.view(), output.view());
  return output.back();
}

template <typename T>
ActivationBuffer<T> backward(const Coefficients<Accumulator<T>>& given,
                             const ActivationBuffer<T>& dL_doutput, const ActivationBuffer<T>& x,
                             std::size_t skip = 0) {
  CoefficientsOnDevice<Accumulator<T>> there(given);
  ActivationsOnDevice<T> gradient(dL_doutput, skip), input(x, skip),
      dL_dinput(x.shape, x.order, skip);
  cuda::affine_backward<T>(there.per_group(there.matrix), gradient.view(),
                           there.per_group(there.gradient), there.bias.data(), input.view(),
                           there.mean.data(), dL_dinput.view());
  return dL_dinput.back();
}

template <typename T>
class CudaAffineOf : public ::testing::Test {};
TYPED_TEST_SUITE(CudaAffineOf, ElementTypes);

TYPED_TEST(CudaAffineOf, MatchesTheCpuInFloat64) {
  using T = TypeParam;
  for (const ActivationShape& shape : device_shapes())
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<T>(random_activations(shape, 31), order);
      const Coefficients<Accumulator<T>> given(shape);
      const Coefficients<double> exact(given);
      const auto x_exact = converted<double>(x, order);
      ActivationBuffer<double> expected(shape, order);
      const double size = 4 * std::sqrt(double(shape.group_size())) + 4;
      cpu::affine<double>(exact.per_group(exact.matrix), exact.mean.data(), exact.bias.data(),
                          x_exact.view(), expected.view());
      expect_close(forward(given, x), expected, shape.group_size(), size);
      cpu::affine<double>(exact.per_group(exact.matrix), nullptr, nullptr, x_exact.view(),
                          expected.view());
      expect_close(forward(given, x, false), expected, shape.group_size(), size);
    }
}

TYPED_TEST(CudaAffineOf, BackwardMatchesTheCpuInFloat64) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const ActivationShape& shape : device_shapes())
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
      ActivationBuffer<double> expected(shape, order);
      const double size = 6 * std::sqrt(double(shape.group_size())) + 4;
      cpu::affine_backward<double>(exact.per_group(exact.matrix), dL_doutput_exact.view(),
                                   exact.per_group(exact.gradient), exact.bias.data(),
                                   x_exact.view(), exact.mean.data(), expected.view());
      expect_close(backward(given, dL_doutput, x), expected, 2 * shape.group_size(), size);

      // A layer in evaluation passes only the matrix, and no input.
      CoefficientsOnDevice<A> there(given);
      ActivationsOnDevice<T> gradient(dL_doutput), dL_dinput(shape, order);
      cuda::affine_backward<T>(there.per_group(there.matrix), gradient.view(), {}, nullptr, {},
                               nullptr, dL_dinput.view());
      cpu::affine_backward<double>(exact.per_group(exact.matrix), dL_doutput_exact.view(), {},
                                   nullptr, {}, nullptr, expected.view());
      expect_close(dL_dinput.back(), expected, 2 * shape.group_size(), size);
    }
}

TYPED_TEST(CudaAffineOf, WhereTheDataStartsDoesNotMatter) {
  for (const ActivationShape& shape : {ActivationShape{3, 64, 64, 1},
                                       {3, 64, 64, 4},
                                       {3, 64, 64, 8},
                                       {3, 64, 64, 16},
                                       {2, 128, 16, 1}})
    for (const Order order : kOrders)
      for (const std::size_t skip : {1, 2, 4}) {
        SCOPED_TRACE(name(shape, order) + ", " + std::to_string(skip) + " further on");
        const auto x = converted<TypeParam>(random_activations(shape, 34), order);
        const Coefficients<Accumulator<TypeParam>> given(shape);
        EXPECT_TRUE(same_bits(forward(given, x).data, forward(given, x, true, skip).data));
        EXPECT_TRUE(same_bits(backward(given, x, x).data, backward(given, x, x, skip).data));
      }
}

template <typename T>
void check_layer(const ActivationShape& shape, Order order) {
  SCOPED_TRACE(name(shape, order));
  const auto x = converted<T>(random_activations(shape, 40), order);
  Coefficients<float> given(shape);
  const double size = 6 * std::sqrt(double(shape.group_size())) + 4;
  for (float& entry : given.gradient) entry *= float(shape.samples()) / 2;
  const Coefficients<double> exact(given);
  const auto x_exact = converted<double>(x, order);
  ActivationBuffer<double> expected(shape, order);
  cpu::affine<double>(exact.per_group(exact.matrix), exact.mean.data(), exact.bias.data(),
                      x_exact.view(), expected.view());
  expect_close(forward(given, x), expected, shape.group_size(), size);
  cpu::affine_backward<double>(exact.per_group(exact.matrix), x_exact.view(),
                               exact.per_group(exact.gradient), exact.bias.data(), x_exact.view(),
                               exact.mean.data(), expected.view());
  expect_close(backward(given, x, x), expected, 2 * shape.group_size(), size);
}

TEST(CudaAffine, ALayersActivations) {
  for (const std::int64_t groups : {1, 4, 16}) {
    check_layer<float>({128, 64, 1024, groups}, Order::contiguous);
    check_layer<BFloat16>({128, 64, 1024, groups}, Order::channels_last);
  }
}

/// Where the terms of a sum cancel, its error is that of the terms: 2^-16 of each, however small the sum is.
TEST(CudaAffine, FactorsOfBFloat16HaveSixteenBits) {
  for (const std::int64_t groups : {1, 2, 4}) {
    const ActivationShape shape{4, 64, 300, groups};
    const std::int64_t d = shape.group_size();
    auto x = converted<BFloat16>(random_activations(shape, 41), Order::channels_last);
    Coefficients<float> given(shape);
    for (std::int64_t k = 0; k < shape.samples(); ++k)
      for (std::int64_t c = 0; c < shape.channels; c += 2) x.at(k, c + 1) = x.at(k, c);
    for (std::size_t k = 0; k < given.matrix.size(); k += 2)
      given.matrix[k + 1] = -0.9999f * given.matrix[k];
    const auto got = forward(given, x, false);
    for (std::int64_t k = 0; k < shape.samples(); ++k)
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        double sum = 0, size = 0;
        for (std::int64_t j = 0; j < d; ++j) {
          const double term =
              double(given.matrix[std::size_t(c * d + j)]) * to_double(x.at(k, c / d * d + j));
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(to_double(got.at(k, c)), sum,
                    0x1p-16 * size + summation_error<float>(d, size) +
                        storage_error<BFloat16>(std::abs(sum)))
            << k << ", " << c;
      }
  }
}

TEST(CudaAffine, MatricesNeedNotBePacked) {
  const ActivationShape shape{2, 12, 40, 3};
  const auto x = converted<float>(random_activations(shape, 35), Order::contiguous);
  const Coefficients<float> given(shape);
  std::vector<float> spread(3 * 50, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t g = 0; g < 3; ++g)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 4; ++j)
        spread[g * 50 + i * 7 + j] = given.matrix[(g * 4 + i) * 4 + j];
  OnDevice<float> matrix(spread);
  CoefficientsOnDevice<float> there(given);
  ActivationsOnDevice<float> input(x), output(shape, x.order);
  cuda::affine<float>({matrix.data(), 3, 4, 7, 50}, there.mean.data(), there.bias.data(),
                      input.view(), output.view());
  EXPECT_TRUE(same_bits(output.back().data, forward(given, x).data));
}

TEST(CudaAffine, CenteringFirstKeepsAccuracyUnderALargeMean) {
  const ActivationShape shape{2, 32, 100, 1};
  for (const Order order : kOrders) {
    const auto x = converted<float>(random_activations(shape, 36, 1e4), order);
    Coefficients<float> given(shape);
    std::vector<float> covariance(32 * 32);
    cpu::moments<float>(x.view(), given.mean.data(), contiguous(covariance.data(), 1, 32));
    const Coefficients<double> exact(given);
    const auto x_exact = converted<double>(x, order);
    ActivationBuffer<double> expected(shape, order);
    cpu::affine<double>(exact.per_group(exact.matrix), exact.mean.data(), exact.bias.data(),
                        x_exact.view(), expected.view());
    expect_close(forward(given, x), expected, 32, 30);
  }
}

TEST(CudaAffine, TheSameBitsEveryTime) {
  for (const ActivationShape& shape :
       {ActivationShape{8, 64, 900, 1}, {8, 64, 900, 16}, {2, 260, 300, 1}, {4, 384, 49, 6}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<float>(random_activations(shape, 37), order);
      const Coefficients<float> given(shape);
      const auto y = forward(given, x), dL_dx = backward(given, x, x);
      for (int repeat = 0; repeat < 4; ++repeat) {
        EXPECT_TRUE(same_bits(forward(given, x).data, y.data));
        EXPECT_TRUE(same_bits(backward(given, x, x).data, dL_dx.data));
      }
    }
}

TEST(CudaAffine, ABadValueStaysInItsSampleAndGroup) {
  for (const ActivationShape& shape : {ActivationShape{2, 12, 50, 3},
                                       {2, 15, 49, 5},
                                       {2, 64, 64, 2},
                                       {2, 64, 64, 4},
                                       {2, 64, 64, 8},
                                       {2, 64, 64, 16},
                                       {2, 128, 64, 2},
                                       {2, 140, 40, 2}})
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
      for (const Order order : kOrders) {
        SCOPED_TRACE(name(shape, order));
        const std::int64_t d = shape.group_size(), sample = 61, channel = d + 1;
        auto x = converted<float>(random_activations(shape, 38), order);
        const Coefficients<float> given(shape);
        const auto clean = forward(given, x), clean_back = backward(given, x, x);
        x.at(sample, channel) = bad;
        const auto got = forward(given, x), got_back = backward(given, x, x);
        for (std::int64_t k = 0; k < shape.samples(); ++k)
          for (std::int64_t c = 0; c < shape.channels; ++c) {
            if (k == sample && c / d == 1) {
              EXPECT_FALSE(std::isfinite(got.at(k, c)));
              EXPECT_FALSE(std::isfinite(got_back.at(k, c)));
            } else {
              ASSERT_EQ(got.at(k, c), clean.at(k, c)) << k << ", " << c;
              ASSERT_EQ(got_back.at(k, c), clean_back.at(k, c)) << k << ", " << c;
            }
          }
      }
}

TEST(CudaAffine, CanBeCapturedInAGraph) {
  for (const Order order : kOrders) {
    const ActivationShape shape{4, 64, 300, 2};
    const auto x = converted<float>(random_activations(shape, 39), order);
    const Coefficients<float> given(shape);
    CoefficientsOnDevice<float> there(given);
    ActivationsOnDevice<float> input(x), output(shape, order), dL_dinput(shape, order);
    run_as_graph([&](const Stream& stream) {
      cuda::affine<float>(there.per_group(there.matrix), there.mean.data(), there.bias.data(),
                          input.view(), output.view(), stream);
      cuda::affine_backward<float>(there.per_group(there.matrix), input.view(),
                                   there.per_group(there.gradient), there.bias.data(), input.view(),
                                   there.mean.data(), dL_dinput.view(), stream);
    });
    EXPECT_TRUE(same_bits(output.back().data, forward(given, x).data));
    EXPECT_TRUE(same_bits(dL_dinput.back().data, backward(given, x, x).data));
  }
}

TEST(CudaAffine, NothingToDo) {
  for (const ActivationShape& shape : {ActivationShape{0, 4, 5, 2}, {3, 4, 0, 1}, {3, 0, 5, 1}}) {
    SCOPED_TRACE(name(shape, Order::contiguous));
    const Coefficients<float> given(shape);
    CoefficientsOnDevice<float> there(given);
    const ActivationBuffer<float> x(shape, Order::contiguous);
    ActivationsOnDevice<float> input(x);
    // Empty outputs in the middle of other memory.
    const std::vector<float> poison(64, -77.0f);
    OnDevice<float> memory(poison);
    Activations<float> y = input.view();
    y.data = memory.data() + 32;
    EXPECT_NO_THROW(
        cuda::affine<float>(there.per_group(there.matrix), nullptr, nullptr, input.view(), y));
    EXPECT_TRUE(same_bits(memory.back(), poison));
    EXPECT_NO_THROW(cuda::affine_backward<float>(there.per_group(there.matrix), input.view(),
                                                 there.per_group(there.gradient), there.bias.data(),
                                                 input.view(), there.mean.data(), y));
    EXPECT_TRUE(same_bits(memory.back(), poison));
  }
}

/// Tests every 16-bit pattern, times factors that cause every kind of rounding.
template <typename T, typename Round>
void check_every_pattern(const Round& round) {
  const ActivationShape shape{1, 1, 65536, 1};
  ActivationBuffer<T> x(shape, Order::contiguous);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) x.data[bits] = T{std::uint16_t(bits)};
  Coefficients<float> given(shape);
  for (const float factor : {1.0f, 0.7f, 1.0f / 3, 1.5f, 1e-3f, 0x1p-13f, 0x1.8p-9f, 4.0f}) {
    given.matrix = {factor};
    const auto y = forward<T>(given, x, false);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const float product = 0.0f + factor * to_float(x.data[bits]);
      if (std::isnan(product))
        ASSERT_TRUE(std::isnan(to_float(y.data[bits]))) << bits << " by " << factor;
      else
        ASSERT_EQ(y.data[bits].bits, round(product).bits) << bits << " by " << factor;
    }
  }
}

TEST(CudaAffine, ConvertsEveryHalf) { check_every_pattern<Half>(to_half); }
TEST(CudaAffine, ConvertsEveryBFloat16) { check_every_pattern<BFloat16>(to_bfloat16); }

TEST(CudaAffine, ErrorsNameWhatWasExpected) {
  float somewhere = 0;  // no kernel is launched
  const Activations<const float> input{&somewhere, 2, 10, 3, 5};
  EXPECT_EQ(error_of([&] {
              cuda::affine<float>(contiguous<const float>(&somewhere, 1, 10), nullptr, nullptr,
                                  input, Activations<float>{&somewhere, 2, 10, 3, 5});
            }),
            "keel::affine: expected matrix of shape (5, 2, 2), got (1, 10, 10)");
  EXPECT_EQ(error_of([&] {
              cuda::affine<float>(contiguous<const float>(&somewhere, 5, 2), nullptr, nullptr,
                                  input, Activations<float>{&somewhere, 2, 5, 6, 5});
            }),
            "keel::affine: expected output (2, 10, 3) in 5 groups, got (2, 5, 6) in 5 "
            "groups");
}

}  // namespace
}  // namespace keel::testing
