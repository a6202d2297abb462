// The contract in keel/affine.h, on the GPU. Needs a GPU.

#include "keel/affine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda_backend.h"
#include "support/affine_contract.h"

namespace keel::testing {
namespace {

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
  expect_close(affine_by<Cuda>(given, x), expected, shape.group_size(), size);
  cpu::affine_backward<double>(exact.per_group(exact.matrix), x_exact.view(),
                               exact.per_group(exact.gradient), exact.bias.data(), x_exact.view(),
                               exact.mean.data(), expected.view());
  expect_close(affine_backward_by<Cuda>(given, x, x), expected, 2 * shape.group_size(), size);
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
    const auto got = affine_by<Cuda>(given, x, false);
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

TEST(CudaAffine, CanBeCapturedInAGraph) {
  for (const Order order : kOrders) {
    const ActivationShape shape{4, 64, 300, 2};
    const auto x = converted<float>(random_activations(shape, 39), order);
    const Coefficients<float> given(shape);
    CoefficientsThere<Cuda, float> there(given);
    ActivationsOnDevice<float> input(x), output(shape, order), dL_dinput(shape, order);
    run_as_graph([&](const Stream& stream) {
      cuda::affine<float>(there.per_group(there.matrix), there.mean.data(), there.bias.data(),
                          input.view(), output.view(), stream);
      cuda::affine_backward<float>(there.per_group(there.matrix), input.view(),
                                   there.per_group(there.gradient), there.bias.data(), input.view(),
                                   there.mean.data(), dL_dinput.view(), stream);
    });
    EXPECT_TRUE(same_bits(output.back().data, affine_by<Cuda>(given, x).data));
    EXPECT_TRUE(same_bits(dL_dinput.back().data, affine_backward_by<Cuda>(given, x, x).data));
  }
}

using AffineOnCuda = OnEveryElement<Cuda>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCuda, AffineContractOf, AffineOnCuda);
INSTANTIATE_TYPED_TEST_SUITE_P(OnCuda, AffineContract, Cuda);

}  // namespace
}  // namespace keel::testing
