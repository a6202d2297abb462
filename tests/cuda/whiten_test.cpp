// keel/whiten.h against its stages: bitwise where it computes the same sums, otherwise against float64. Needs a GPU.

#include "keel/whiten.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "cuda/whiten/shortcuts.h"
#include "layer_on_device.h"
#include "support/affine.h"
#include "support/errors.h"
#include "support/layer.h"
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

/// Compares entry by entry, within `error` and the rounding of the stored type.
template <typename T>
void expect_near(const char* what, const std::vector<T>& got, const std::vector<double>& expected,
                 double error) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t k = 0; k < got.size(); ++k)
    ASSERT_NEAR(to_double(got[k]), expected[k],
                error + storage_error<T>(std::abs(expected[k]) + error))
        << what << " " << k;
}

const LayerMap kMaps[] = {Zca{1e-2}, PcaDenoising{1e-2, LeadingCount{3}}, PcaWhitening{1e-2}};

template <typename T>
class CudaWhiten : public ::testing::Test {};
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
      for (const LayerMap& map : kMaps) {
        SCOPED_TRACE(name(shape, order) + " " + to_string(map));
        auto whole = make_layer<T>(shape, order), parts = make_layer<T>(shape, order);
        parts.forward_by_stages(map);
        parts.backward_by_stages(map, Exact{});
        run_as_graph([&](const Stream& stream) {
          whole.forward(map, stream);
          whole.backward(map, Exact{}, stream);
        });
        for (const auto numbers : {&LayerOnDevice<T>::mean, &LayerOnDevice<T>::covariance,
                                   &LayerOnDevice<T>::layer_matrix, &LayerOnDevice<T>::values,
                                   &LayerOnDevice<T>::vectors})
          EXPECT_TRUE(same_bits((whole.*numbers).back(), (parts.*numbers).back()));
        EXPECT_EQ(whole.rank.back(), parts.rank.back());
        // For 16-bit numbers on tensor cores, the mean is subtracted from the product.
        const bool other_sums =
            sizeof(T) == 2 && shape.channels % 64 == 0 &&
            (shape.group_size() == 16 || shape.group_size() == 32 || shape.group_size() == 64);
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

/// Replaces each process's numbers by their sum.
template <typename T, typename Number>
void meet(std::vector<std::unique_ptr<LayerOnDevice<T>>>& processes,
          OnDevice<Number> LayerOnDevice<T>::*numbers) {
  std::vector<Number> total = ((*processes[0]).*numbers).back();
  for (std::size_t p = 1; p < processes.size(); ++p) {
    const auto own = ((*processes[p]).*numbers).back();
    for (std::size_t k = 0; k < total.size(); ++k) total[k] += own[k];
  }
  for (auto& one : processes) ((*one).*numbers).set(total);
}

TYPED_TEST(CudaWhiten, SeveralProcessesAreOneWithAllTheirSamples) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const ActivationShape& shape :
       {ActivationShape{9, 64, 32, 1}, {9, 64, 15, 16}, {9, 6, 20, 2}, {9, 130, 20, 1}})
    for (const Order order : kOrders)
      for (const LayerMap& map : kMaps) {
        SCOPED_TRACE(name(shape, order) + " " + to_string(map));
        const auto x = converted<T>(random_activations(shape, 41), order),
                   slope = converted<T>(random_activations(shape, 42, 0), order);
        LayerOnDevice<T> whole(x, slope);
        whole.forward(map);
        whole.backward(map, Exact{});
        std::vector<std::unique_ptr<LayerOnDevice<T>>> processes;
        for (const auto& [first, count] : {std::pair(0, 4), {4, 0}, {4, 5}})
          processes.push_back(
              std::make_unique<LayerOnDevice<T>>(rows(x, first, count), rows(slope, first, count)));
        for (auto& one : processes) one->sum_moments();
        meet(processes, &LayerOnDevice<T>::moments);
        for (auto& one : processes) one->apply(map);
        for (auto& one : processes) one->sum_backward();
        meet(processes, &LayerOnDevice<T>::sums);
        for (auto& one : processes) one->apply_backward(map, Exact{});

        std::vector<T> output, dL_dinput;
        for (auto& one : processes) {
          for (const auto& [from, to] : {std::pair(&LayerOnDevice<T>::output, &output),
                                         {&LayerOnDevice<T>::dL_dinput, &dL_dinput}}) {
            const auto part = ((*one).*from).back().data;
            to->insert(to->end(), part.begin(), part.end());
          }
          EXPECT_TRUE(same_bits(one->layer_matrix.back(), processes[0]->layer_matrix.back()));
          EXPECT_EQ(one->rank.back(), whole.rank.back());
        }
        meet(processes, &LayerOnDevice<T>::dL_dweight);
        meet(processes, &LayerOnDevice<T>::dL_dbias);
        // The small matrix amplifies rounding of the covariance by this much.
        const double many = 1000 * double(shape.group_size());
        const auto expect = [&](const char* what, const auto& got,
                                const std::vector<double>& truth) {
          expect_near(what, got, truth, many * kEps<A> * largest(truth));
        };
        expect("output", output, doubles(whole.output.back().data));
        expect("dL_dinput", dL_dinput, doubles(whole.dL_dinput.back().data));
        expect("dL_dweight", processes[0]->dL_dweight.back(), doubles(whole.dL_dweight.back()));
        expect("dL_dbias", processes[0]->dL_dbias.back(), doubles(whole.dL_dbias.back()));
      }
}

/// Runs only the passes, with the statistics that the layer itself found.
template <typename T>
void check_passes(const ActivationShape& shape, Order order, double mean) {
  using A = Accumulator<T>;
  SCOPED_TRACE(name(shape, order) + ", means of " + std::to_string(mean));
  const LayerMap map = Zca{1e-2};
  const auto x = converted<T>(random_activations(shape, 43, mean), order),
             slope = converted<T>(random_activations(shape, 44, 0), order);
  LayerOnDevice<T> layer(x, slope);
  layer.forward(map);
  layer.backward(map, Exact{});

  const std::int64_t d = shape.group_size();
  LayerOnHost<double> exact(converted<double>(x, order), converted<double>(slope, order));
  exact.weight = doubles(layer.weight.back());
  exact.mean = doubles(layer.mean.back());
  exact.covariance = doubles(layer.covariance.back());
  exact.layer_matrix = doubles(layer.layer_matrix.back());
  exact.values = doubles(layer.values.back());
  exact.vectors = doubles(layer.vectors.back());
  exact.rank = layer.rank.back();
  std::vector<double> m = exact.layer_matrix, b = doubles(layer.bias.back());
  for (std::size_t k = 0; k < m.size(); ++k) m[k] *= exact.weight[k / std::size_t(d)];
  cpu::affine<double>(exact.per_group(m), exact.mean.data(), b.data(), exact.input.view(),
                      exact.output.view());
  // Five times the rounding of a product of numbers of this size.
  const double size = largest(m) * 4 * std::sqrt(double(d)) + 1;
  expect_near("output", layer.output.back().data, exact.output.data,
              5 * summation_error<A>(d, size));

  exact.backward(map, Exact{});
  const double many = std::sqrt(double(shape.samples()));
  expect_near("dL_dbias", layer.dL_dbias.back(), exact.dL_dbias, rounding<A>(2, 2 * many));
  expect_near("dL_dweight", layer.dL_dweight.back(), exact.dL_dweight,
              5 * summation_error<A>(d, largest(exact.layer_matrix) * many * double(d)));
  expect_near("dL_dinput", layer.dL_dinput.back().data, exact.dL_dinput.data,
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

/// A matrix of a few may be split over more blocks than one of many. The result does not change.
template <typename T>
void check_many_groups(std::int64_t d) {
  constexpr std::int64_t kMany = 100, kFew = 3;
  const ActivationShape shape{2, kMany * d, 150, kMany};
  check_passes<T>(shape, Order::contiguous, 1);

  SCOPED_TRACE(name(shape, Order::contiguous));
  auto many = make_layer<T>(shape, Order::contiguous),
       few = make_layer<T>(shape, Order::contiguous);
  const auto run = [&](LayerOnDevice<T>& layer, std::int64_t groups) {
    layer.forward(Zca{1e-2});
    cuda::cross_moments<T>(layer.dL_doutput.view(), layer.input.view(), layer.mean.data(),
                           layer.dL_dbias.data(), layer.per_group(layer.cross));
    const auto of = [&](OnDevice<T>& numbers) { return contiguous<T>(numbers.data(), groups, d); };
    cuda::weighted_layer_matrix_backward<T>(
        Zca{1e-2}, Exact{}, of(layer.covariance),
        {layer.values.data(), of(layer.vectors), layer.rank.data()}, of(layer.layer_matrix),
        layer.weight.data(), layer.dL_dbias.data(), of(layer.cross), layer.dL_dweight.data(),
        layer.dL_dmean.data(), of(layer.dL_dcovariance), of(layer.matrix), {});
  };
  run(many, kMany);
  run(few, kFew);
  for (const auto numbers : {&LayerOnDevice<T>::dL_dweight, &LayerOnDevice<T>::dL_dmean,
                             &LayerOnDevice<T>::dL_dcovariance, &LayerOnDevice<T>::matrix}) {
    auto got = (few.*numbers).back(), expected = (many.*numbers).back();
    const std::size_t count = got.size() / kMany * kFew;
    got.resize(count);
    expected.resize(count);
    EXPECT_TRUE(same_bits(got, expected));
  }
}

TEST(CudaWhiten, ManyGroupsAreLikeAFew) {
  for (const std::int64_t d : {16, 33, 64}) {
    check_many_groups<float>(d);
    check_many_groups<double>(d);
  }
}

/// Kernels start before their predecessors are done. In any order of the queue, each must find its own numbers.
template <typename T>
void check_succession(const ActivationShape& shape, Order order, bool in_halves) {
  SCOPED_TRACE(name(shape, order));
  constexpr int kLayers = 3, kRounds = 8;
  std::vector<std::unique_ptr<LayerOnDevice<T>>> layers;
  std::vector<std::vector<T>> outputs, gradients;
  const LayerMap map = Zca{1e-2};
  const auto forward = [&](LayerOnDevice<T>& layer, const Stream& stream) {
    if (!in_halves) return layer.forward(map, stream);
    layer.sum_moments(stream);
    layer.apply(map, stream);
  };
  const auto backward = [&](LayerOnDevice<T>& layer, const Stream& stream) {
    if (!in_halves) return layer.backward(map, Exact{}, stream);
    layer.sum_backward(stream);
    layer.apply_backward(map, Exact{}, stream);
  };
  for (int k = 0; k < kLayers; ++k) {
    const std::uint64_t seed = 60 + 2 * std::uint64_t(k);
    LayerOnDevice<T> alone = make_layer<T>(shape, order, seed);
    forward(alone, {});
    check(cudaDeviceSynchronize());
    backward(alone, {});
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
      for (auto& layer : layers) forward(*layer, stream);
      for (auto& layer : layers) backward(*layer, stream);
      for (auto& layer : layers) {
        forward(*layer, stream);
        backward(*layer, stream);
      }
    }
  });
  for (std::size_t k = 0; k < kLayers; ++k) {
    EXPECT_TRUE(same_bits(layers[k]->output.back().data, outputs[k]));
    EXPECT_TRUE(same_bits(layers[k]->dL_dinput.back().data, gradients[k]));
  }
}

TEST(CudaWhiten, OneLayerBehindAnother) {
  for (const bool in_halves : {false, true}) {
    check_succession<BFloat16>({16, 64, 1024, 1}, Order::channels_last, in_halves);
    check_succession<float>({16, 64, 1024, 1}, Order::contiguous, in_halves);
    check_succession<float>({16, 64, 1024, 16}, Order::contiguous, in_halves);
    check_succession<Half>({3, 128, 49, 8}, Order::channels_last, in_halves);
  }
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
    layer.sum_moments();
    layer.apply(Zca{});
    layer.sum_backward();
    layer.apply_backward(Zca{}, Exact{});
    for (const float entry : layer.dL_dweight.back()) EXPECT_TRUE(std::isnan(entry));
  }
  auto layer = make_layer<float>({2, 8, 5, 2}, Order::contiguous);
  WhitenState<float> state = layer.state();
  state.layer_matrix = contiguous<float>(nullptr, 1, 8);
  EXPECT_EQ(error_of([&] {
              cuda::whiten<float>(Zca{}, layer.input.view(), nullptr, nullptr, state,
                                  layer.output.view());
            }),
            "keel::whiten: expected layer_matrix of shape (2, 4, 4), got (1, 8, 8)");
}

}  // namespace
}  // namespace keel::testing
