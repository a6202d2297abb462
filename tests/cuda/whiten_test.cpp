// keel/whiten.h against the stages it is made of: bit for bit where it does the same sums, against float64
// where it does not. Needs a GPU.

#include "keel/whiten.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "keel/error.h"
#include "layer_on_device.h"
#include "support/affine.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
LayerOnDevice<T> make_layer(const ActivationShape& shape, Order order, std::uint64_t seed = 41,
                            double mean = 1) {
  return {converted<T>(random_activations(shape, seed, mean), order),
          converted<T>(random_activations(shape, seed + 1, 0), order)};
}

double largest(const std::vector<double>& numbers) {
  double size = 0;
  for (const double x : numbers) size = std::max(size, std::abs(x));
  return size;
}
template <typename T>
std::vector<double> doubles(const std::vector<T>& numbers) {
  std::vector<double> all;
  for (const T& x : numbers) all.push_back(to_double(x));
  return all;
}

/// Entry by entry within `error` and the rounding of what is stored.
template <typename T>
void expect_near(const char* what, const std::vector<T>& got, const std::vector<double>& expected,
                 double error) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t k = 0; k < got.size(); ++k)
    ASSERT_NEAR(to_double(got[k]), expected[k],
                error + storage_error<T>(std::abs(expected[k]) + error))
        << what << " " << k;
}

const SubspaceMap kMaps[] = {Zca{1e-2}, PcaDenoising{1e-2, LeadingCount{3}}, PcaWhitening{1e-2}};

template <typename T>
class CudaWhiten : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double, Half, BFloat16>;
TYPED_TEST_SUITE(CudaWhiten, ElementTypes);

TYPED_TEST(CudaWhiten, IsItsStages) {
  using T = TypeParam;
  for (const ActivationShape& shape : {ActivationShape{4, 64, 256, 1},
                                       {4, 64, 256, 4},
                                       {4, 64, 256, 16},
                                       {5, 128, 24, 4},
                                       {2, 128, 72, 2},
                                       {2, 12, 50, 3},
                                       {2, 66, 80, 2},
                                       {3, 130, 96, 1}})
    for (const Order order : kOrders)
      for (const SubspaceMap& map : kMaps) {
        SCOPED_TRACE(name(shape, order) + " " + to_string(map));
        auto whole = make_layer<T>(shape, order), parts = make_layer<T>(shape, order);
        parts.forward_by_stages(map);
        parts.backward_by_stages(map, Exact{});
        run_as_graph([&](const Stream& stream) {
          whole.forward(map, stream);
          whole.backward(map, Exact{}, stream);
        });
        for (const auto numbers :
             {&LayerOnDevice<T>::mean, &LayerOnDevice<T>::covariance, &LayerOnDevice<T>::subspace,
              &LayerOnDevice<T>::values, &LayerOnDevice<T>::vectors})
          EXPECT_TRUE(same_bits((whole.*numbers).back(), (parts.*numbers).back()));
        EXPECT_EQ(whole.rank.back(), parts.rank.back());
        // Numbers of 16 bits in one group a slab take their mean off the product.
        const bool other_sums = sizeof(T) == 2 && shape.group_size() == 64;
        const auto output = doubles(parts.output.back().data);
        if (!other_sums)
          EXPECT_TRUE(same_bits(whole.output.back().data, parts.output.back().data));
        else
          expect_near("output", whole.output.back().data, output,
                      storage_error<T>(largest(output)));
        using A = Accumulator<T>;
        const double d = double(shape.group_size());
        for (const auto numbers : {&LayerOnDevice<T>::dL_dweight, &LayerOnDevice<T>::dL_dbias}) {
          const auto expected = doubles((parts.*numbers).back());
          expect_near("gradient of weight or bias", (whole.*numbers).back(), expected,
                      summation_error<A>(std::int64_t(d), 10 * largest(expected)));
        }
        const auto slope = doubles(parts.dL_dinput.back().data);
        expect_near("gradient of input", whole.dL_dinput.back().data, slope,
                    summation_error<A>(std::int64_t(d), 100 * largest(slope)) +
                        storage_error<T>(largest(slope)));
      }
}

/// The passes alone, for what the layer itself found out about the batch.
template <typename T>
void check_passes(const ActivationShape& shape, Order order, double mean) {
  using A = Accumulator<T>;
  SCOPED_TRACE(name(shape, order) + ", means of " + std::to_string(mean));
  const SubspaceMap map = Zca{1e-2};
  const auto x = converted<T>(random_activations(shape, 43, mean), order),
             slope = converted<T>(random_activations(shape, 44, 0), order);
  LayerOnDevice<T> layer(x, slope);
  layer.forward(map);
  layer.backward(map, Exact{});

  const std::int64_t d = shape.group_size();
  const auto x_exact = converted<double>(x, order), slope_exact = converted<double>(slope, order);
  const auto mu = doubles(layer.mean.back()), s = doubles(layer.subspace.back()),
             w = doubles(layer.weight.back()), b = doubles(layer.bias.back()),
             covariance = doubles(layer.covariance.back()), values = doubles(layer.values.back()),
             vectors = doubles(layer.vectors.back());
  auto rank = layer.rank.back();
  std::vector<double> m = s;
  for (std::size_t k = 0; k < m.size(); ++k) m[k] *= w[k / std::size_t(d)];
  const auto per_group = [&](const std::vector<double>& numbers) {
    return contiguous<const double>(numbers.data(), shape.groups, d);
  };
  ActivationBuffer<double> output(shape, order), dL_dinput(shape, order);
  cpu::affine<double>(per_group(m), mu.data(), b.data(), x_exact.view(), output.view());
  // Five times what a product makes by itself of numbers of this size.
  const double size = largest(m) * 4 * std::sqrt(double(d)) + 1;
  expect_near("output", layer.output.back().data, output.data, 5 * summation_error<A>(d, size));

  std::vector<double> sum(mu.size()), cross(m.size()), dL_dw(mu.size()), dL_dmu(mu.size()),
      dL_ds(m.size()), dL_dcov(m.size()), scaled(m.size());
  const auto into = [&](std::vector<double>& numbers) {
    return contiguous<double>(numbers.data(), shape.groups, d);
  };
  cpu::cross_moments<double>(slope_exact.view(), x_exact.view(), mu.data(), sum.data(),
                             into(cross));
  cpu::scale_backward<double>(w.data(), per_group(s), sum.data(), per_group(cross), dL_dw.data(),
                              dL_dmu.data(), into(dL_ds), into(scaled));
  cpu::subspace_backward<double>(
      map, Exact{}, per_group(covariance),
      SubspaceState<const double>{values.data(), per_group(vectors), rank.data()}, per_group(dL_ds),
      into(dL_dcov));
  cpu::affine_backward<double>(per_group(m), slope_exact.view(), per_group(dL_dcov), dL_dmu.data(),
                               x_exact.view(), mu.data(), dL_dinput.view());
  const double many = std::sqrt(double(shape.samples()));
  expect_near("dL_dbias", layer.dL_dbias.back(), sum, rounding<A>(2, 2 * many));
  expect_near("dL_dweight", layer.dL_dweight.back(), dL_dw,
              5 * summation_error<A>(d, largest(s) * many * double(d)));
  expect_near("dL_dinput", layer.dL_dinput.back().data, dL_dinput.data,
              5 * summation_error<A>(2 * d, 6 * size));
}

TYPED_TEST(CudaWhiten, PassesAreThoseOfFloat64WhateverTheMean) {
  for (const double mean : {0.0, 1.0, 3.0, 100.0})
    for (const Order order : kOrders) {
      check_passes<TypeParam>({4, 64, 300, 1}, order, mean);
      check_passes<TypeParam>({3, 64, 68, 4}, order, mean);
      check_passes<TypeParam>({2, 128, 150, 2}, order, mean);
    }
}

TEST(CudaWhiten, ALayersActivations) {
  check_passes<BFloat16>({128, 64, 1024, 1}, Order::channels_last, 1);
  check_passes<float>({128, 64, 1024, 1}, Order::contiguous, 1);
}

/// Kernels start before the ones they follow are done: whatever is queued behind whatever, each has to
/// find its own numbers.
template <typename T>
void check_succession(const ActivationShape& shape, Order order) {
  SCOPED_TRACE(name(shape, order));
  constexpr int kLayers = 3, kRounds = 8;
  std::vector<std::unique_ptr<LayerOnDevice<T>>> layers;
  std::vector<std::vector<T>> outputs, gradients;
  const SubspaceMap map = Zca{1e-2};
  for (int k = 0; k < kLayers; ++k) {
    const std::uint64_t seed = 60 + 2 * std::uint64_t(k);
    LayerOnDevice<T> alone = make_layer<T>(shape, order, seed);
    alone.forward(map);
    check(cudaDeviceSynchronize());
    alone.backward(map, Exact{});
    outputs.push_back(alone.output.back().data);
    gradients.push_back(alone.dL_dinput.back().data);
    layers.push_back(std::make_unique<LayerOnDevice<T>>(
        converted<T>(random_activations(shape, seed), order),
        converted<T>(random_activations(shape, seed + 1, 0), order)));
  }
  Reuse scratch;
  run_as_graph([&](const Stream& on) {
    const Stream stream = scratch.stream(on);
    for (int round = 0; round < kRounds; ++round) {
      for (auto& layer : layers) layer->forward(map, stream);
      for (auto& layer : layers) layer->backward(map, Exact{}, stream);
      for (auto& layer : layers) {
        layer->forward(map, stream);
        layer->backward(map, Exact{}, stream);
      }
    }
  });
  for (std::size_t k = 0; k < kLayers; ++k) {
    EXPECT_TRUE(same_bits(layers[k]->output.back().data, outputs[k]));
    EXPECT_TRUE(same_bits(layers[k]->dL_dinput.back().data, gradients[k]));
  }
}

TEST(CudaWhiten, OneLayerBehindAnother) {
  check_succession<BFloat16>({16, 64, 1024, 1}, Order::channels_last);
  check_succession<float>({16, 64, 1024, 1}, Order::contiguous);
  check_succession<float>({16, 64, 1024, 16}, Order::contiguous);
  check_succession<Half>({3, 128, 49, 8}, Order::channels_last);
}

TEST(CudaWhiten, NaNStaysInItsGroup) {
  for (const Order order : kOrders)
    for (const std::int64_t groups : {2, 8}) {
      const ActivationShape shape{2, 128, 64, groups};
      SCOPED_TRACE(name(shape, order));
      const std::int64_t d = shape.group_size();
      auto x = converted<BFloat16>(random_activations(shape, 45), order);
      const auto slope = converted<BFloat16>(random_activations(shape, 46), order);
      LayerOnDevice<BFloat16> clean(x, slope);
      clean.forward(Zca{1e-2});
      clean.backward(Zca{1e-2}, Exact{});
      x.at(5, d + 3) = to_bfloat16(std::numeric_limits<float>::quiet_NaN());
      LayerOnDevice<BFloat16> bad(x, slope);
      bad.forward(Zca{1e-2});
      bad.backward(Zca{1e-2}, Exact{});
      const auto expected = clean.output.back(), got = bad.output.back();
      const auto expected_back = clean.dL_dinput.back(), got_back = bad.dL_dinput.back();
      for (std::int64_t k = 0; k < shape.samples(); ++k)
        for (std::int64_t c = 0; c < shape.channels; ++c) {
          if (c / d == 1) {
            ASSERT_TRUE(std::isnan(to_double(got.at(k, c))));
            ASSERT_TRUE(std::isnan(to_double(got_back.at(k, c))));
          } else {
            ASSERT_EQ(got.at(k, c).bits, expected.at(k, c).bits);
            ASSERT_EQ(got_back.at(k, c).bits, expected_back.at(k, c).bits);
          }
        }
    }
}

TEST(CudaWhiten, NothingToDoAndErrors) {
  for (const ActivationShape& shape : {ActivationShape{0, 4, 5, 2}, {3, 4, 0, 1}, {3, 0, 5, 1}}) {
    auto layer = make_layer<float>(shape, Order::contiguous);
    layer.forward(Zca{});
    layer.backward(Zca{}, Exact{});
  }
  auto layer = make_layer<float>({2, 8, 5, 2}, Order::contiguous);
  WhitenState<float> state = layer.state();
  state.subspace = contiguous<float>(nullptr, 1, 8);
  try {
    cuda::whiten<float>(Zca{}, layer.input.view(), nullptr, nullptr, state, layer.output.view());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "keel::cuda::whiten: expected subspace of shape (2, 4, 4), got (1, 8, 8)");
  }
}

}  // namespace
}  // namespace keel::testing
