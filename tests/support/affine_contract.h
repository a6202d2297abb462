#pragma once

// The contract in keel/affine.h, for every backend.

#include "support/affine.h"
#include "support/backend.h"
#include "support/errors.h"

namespace keel::testing {

template <typename Backend, typename A>
struct CoefficientsThere {
  typename Backend::template Numbers<A> matrix, gradient, mean, bias;
  ActivationShape shape;
  explicit CoefficientsThere(const Coefficients<A>& c)
      : matrix(c.matrix), gradient(c.gradient), mean(c.mean), bias(c.bias), shape(c.shape) {}
  Matrices<const A> per_group(typename Backend::template Numbers<A>& data) {
    return contiguous<const A>(data.data(), shape.groups, shape.group_size());
  }
};

template <typename Backend, typename T>
using ActivationsThere = ActivationsIn<Backend::template Numbers, T>;

/// Without `center_and_bias` both are null.
template <typename Backend, typename T>
ActivationBuffer<T> affine_by(const Coefficients<Accumulator<T>>& given,
                              const ActivationBuffer<T>& x, bool center_and_bias = true,
                              std::size_t skip = 0,
                              const typename Backend::Way& way = Backend::way()) {
  CoefficientsThere<Backend, Accumulator<T>> there(given);
  ActivationsThere<Backend, T> input(x, skip), output(x.shape, x.order, skip);
  Backend::template affine<T>(
      way, there.per_group(there.matrix), center_and_bias ? there.mean.data() : nullptr,
      center_and_bias ? there.bias.data() : nullptr, input.view(), output.view());
  return output.back();
}

template <typename Backend, typename T>
ActivationBuffer<T> affine_backward_by(const Coefficients<Accumulator<T>>& given,
                                       const ActivationBuffer<T>& dL_doutput,
                                       const ActivationBuffer<T>& x, std::size_t skip = 0,
                                       const typename Backend::Way& way = Backend::way()) {
  CoefficientsThere<Backend, Accumulator<T>> there(given);
  ActivationsThere<Backend, T> gradient(dL_doutput, skip), input(x, skip),
      dL_dinput(x.shape, x.order, skip);
  Backend::template affine_backward<T>(way, there.per_group(there.matrix), gradient.view(),
                                       there.per_group(there.gradient), there.bias.data(),
                                       input.view(), there.mean.data(), dL_dinput.view());
  return dL_dinput.back();
}

template <typename Case>
class AffineContractOf : public ::testing::Test {};
TYPED_TEST_SUITE_P(AffineContractOf);

TYPED_TEST_P(AffineContractOf, MatchesTheReference) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const ActivationShape& shape : B::shapes())
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<T>(random_activations(shape, 31), order);
      const Coefficients<Accumulator<T>> given(shape);
      const Coefficients<double> exact(given);
      const auto x_exact = converted<double>(x, order);
      ActivationBuffer<double> expected(shape, order);
      const double size = 4 * std::sqrt(double(shape.group_size())) + 4;
      reference::affine(exact.per_group(exact.matrix), exact.mean.data(), exact.bias.data(),
                        x_exact.view(), expected.view());
      expect_close(affine_by<B>(given, x), expected, shape.group_size(), size);
      reference::affine(exact.per_group(exact.matrix), nullptr, nullptr, x_exact.view(),
                        expected.view());
      expect_close(affine_by<B>(given, x, false), expected, shape.group_size(), size);
    }
}

TYPED_TEST_P(AffineContractOf, BackwardMatchesTheReference) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  using A = Accumulator<T>;
  for (const ActivationShape& shape : B::shapes())
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
      reference::affine_backward(exact.per_group(exact.matrix), dL_doutput_exact.view(),
                                 exact.per_group(exact.gradient), exact.bias.data(), x_exact.view(),
                                 exact.mean.data(), expected.view());
      expect_close(affine_backward_by<B>(given, dL_doutput, x), expected, 2 * shape.group_size(),
                   size);

      // A layer in evaluation passes only the matrix, and no input.
      CoefficientsThere<B, A> there(given);
      ActivationsThere<B, T> gradient(dL_doutput), dL_dinput(shape, order);
      B::template affine_backward<T>(B::way(), there.per_group(there.matrix), gradient.view(),
                                     Matrices<const A>{}, nullptr, Activations<const T>{}, nullptr,
                                     dL_dinput.view());
      reference::affine_backward(exact.per_group(exact.matrix), dL_doutput_exact.view(), {},
                                 nullptr, {}, nullptr, expected.view());
      expect_close(dL_dinput.back(), expected, 2 * shape.group_size(), size);
    }
}

TYPED_TEST_P(AffineContractOf, WhereTheDataStartsDoesNotMatter) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const ActivationShape& shape : {ActivationShape{3, 64, 64, 1},
                                       {3, 64, 64, 4},
                                       {3, 64, 64, 8},
                                       {3, 64, 64, 16},
                                       {2, 128, 16, 1}})
    for (const Order order : kOrders)
      for (const std::size_t skip : {1, 2, 4}) {
        SCOPED_TRACE(name(shape, order) + ", " + std::to_string(skip) + " further on");
        const auto x = converted<T>(random_activations(shape, 34), order);
        const Coefficients<Accumulator<T>> given(shape);
        EXPECT_TRUE(
            same_bits(affine_by<B>(given, x).data, affine_by<B>(given, x, true, skip).data));
        EXPECT_TRUE(same_bits(affine_backward_by<B>(given, x, x).data,
                              affine_backward_by<B>(given, x, x, skip).data));
      }
}

REGISTER_TYPED_TEST_SUITE_P(AffineContractOf, MatchesTheReference, BackwardMatchesTheReference,
                            WhereTheDataStartsDoesNotMatter);

template <typename Backend>
class AffineContract : public ::testing::Test {};
TYPED_TEST_SUITE_P(AffineContract);

TYPED_TEST_P(AffineContract, MatricesNeedNotBePacked) {
  const ActivationShape shape{2, 12, 40, 3};
  const auto x = converted<float>(random_activations(shape, 35), Order::contiguous);
  const Coefficients<float> given(shape);
  std::vector<float> spread(3 * 50, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t g = 0; g < 3; ++g)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 4; ++j)
        spread[g * 50 + i * 7 + j] = given.matrix[(g * 4 + i) * 4 + j];
  typename TypeParam::template Numbers<float> matrix(spread);
  CoefficientsThere<TypeParam, float> there(given);
  ActivationsThere<TypeParam, float> input(x), output(shape, x.order);
  TypeParam::template affine<float>(
      TypeParam::way(), Matrices<const float>{matrix.data(), 3, 4, 7, 50}, there.mean.data(),
      there.bias.data(), input.view(), output.view());
  EXPECT_TRUE(same_bits(output.back().data, affine_by<TypeParam>(given, x).data));
}

TYPED_TEST_P(AffineContract, CenteringFirstKeepsAccuracyUnderALargeMean) {
  const ActivationShape shape{2, 32, 100, 1};
  for (const Order order : kOrders) {
    const auto x = converted<float>(random_activations(shape, 36, 1e4), order);
    Coefficients<float> given(shape);
    std::vector<float> covariance(32 * 32);
    cpu::moments<float>(x.view(), given.mean.data(), contiguous(covariance.data(), 1, 32));
    const Coefficients<double> exact(given);
    const auto x_exact = converted<double>(x, order);
    ActivationBuffer<double> expected(shape, order);
    reference::affine(exact.per_group(exact.matrix), exact.mean.data(), exact.bias.data(),
                      x_exact.view(), expected.view());
    expect_close(affine_by<TypeParam>(given, x), expected, 32, 30);
  }
}

TYPED_TEST_P(AffineContract, TheSameBitsEveryTime) {
  for (const ActivationShape& shape :
       {ActivationShape{8, 64, 900, 1}, {8, 64, 900, 16}, {2, 260, 300, 1}, {4, 384, 49, 6}})
    for (const Order order : kOrders) {
      SCOPED_TRACE(name(shape, order));
      const auto x = converted<float>(random_activations(shape, 37), order);
      const Coefficients<float> given(shape);
      const auto y = affine_by<TypeParam>(given, x),
                 dL_dx = affine_backward_by<TypeParam>(given, x, x);
      for (const auto& way : TypeParam::ways()) {
        EXPECT_TRUE(same_bits(affine_by<TypeParam>(given, x, true, 0, way).data, y.data));
        EXPECT_TRUE(same_bits(affine_backward_by<TypeParam>(given, x, x, 0, way).data, dL_dx.data));
      }
    }
}

TYPED_TEST_P(AffineContract, ABadValueStaysInItsSampleAndGroup) {
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
        const auto clean = affine_by<TypeParam>(given, x),
                   clean_back = affine_backward_by<TypeParam>(given, x, x);
        x.at(sample, channel) = bad;
        const auto got = affine_by<TypeParam>(given, x),
                   got_back = affine_backward_by<TypeParam>(given, x, x);
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

TYPED_TEST_P(AffineContract, NothingToDo) {
  for (const ActivationShape& shape : {ActivationShape{0, 4, 5, 2}, {3, 4, 0, 1}, {3, 0, 5, 1}}) {
    SCOPED_TRACE(name(shape, Order::contiguous));
    const Coefficients<float> given(shape);
    CoefficientsThere<TypeParam, float> there(given);
    const ActivationBuffer<float> x(shape, Order::contiguous);
    ActivationsThere<TypeParam, float> input(x);
    // Empty outputs in the middle of other memory.
    const std::vector<float> poison(64, -77.0f);
    typename TypeParam::template Numbers<float> memory(poison);
    Activations<float> y = input.view();
    y.data = memory.data() + 32;
    EXPECT_NO_THROW(TypeParam::template affine<float>(
        TypeParam::way(), there.per_group(there.matrix), nullptr, nullptr, input.view(), y));
    EXPECT_TRUE(same_bits(memory.back(), poison));
    EXPECT_NO_THROW(TypeParam::template affine_backward<float>(
        TypeParam::way(), there.per_group(there.matrix), input.view(),
        there.per_group(there.gradient), there.bias.data(), input.view(), there.mean.data(), y));
    EXPECT_TRUE(same_bits(memory.back(), poison));
  }
}

/// Kernels convert in vectors. Tests every 16-bit pattern, times factors that cause every kind of rounding.
template <typename Backend, typename T, typename Round>
void expect_every_pattern_converted(const Round& round) {
  const ActivationShape shape{1, 1, 65536, 1};
  ActivationBuffer<T> x(shape, Order::contiguous);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) x.data[bits] = T{std::uint16_t(bits)};
  Coefficients<float> given(shape);
  for (const float factor : {1.0f, 0.7f, 1.0f / 3, 1.5f, 1e-3f, 0x1p-13f, 0x1.8p-9f, 4.0f}) {
    given.matrix = {factor};
    const auto y = affine_by<Backend, T>(given, x, false);
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

TYPED_TEST_P(AffineContract, ConvertsEveryHalf) {
  expect_every_pattern_converted<TypeParam, Half>(to_half);
}
TYPED_TEST_P(AffineContract, ConvertsEveryBFloat16) {
  expect_every_pattern_converted<TypeParam, BFloat16>(to_bfloat16);
}

TYPED_TEST_P(AffineContract, ErrorsNameWhatWasExpected) {
  float somewhere = 0;  // is not read
  const auto call = [&](std::int64_t matrices, std::int64_t n, const Activations<float>& output) {
    return error_of([&] {
      TypeParam::template affine<float>(
          TypeParam::way(), contiguous<const float>(&somewhere, matrices, n), nullptr, nullptr,
          Activations<const float>{&somewhere, 2, 10, 3, 5}, output);
    });
  };
  EXPECT_EQ(call(1, 10, {&somewhere, 2, 10, 3, 5}),
            "keel::affine: expected matrix of shape (5, 2, 2), got (1, 10, 10)");
  EXPECT_EQ(call(5, 2, {&somewhere, 2, 5, 6, 5}),
            "keel::affine: expected output (2, 10, 3) in 5 groups, got (2, 5, 6) in 5 groups");
}

REGISTER_TYPED_TEST_SUITE_P(AffineContract, MatricesNeedNotBePacked,
                            CenteringFirstKeepsAccuracyUnderALargeMean, TheSameBitsEveryTime,
                            ABadValueStaysInItsSampleAndGroup, NothingToDo, ConvertsEveryHalf,
                            ConvertsEveryBFloat16, ErrorsNameWhatWasExpected);

}  // namespace keel::testing
