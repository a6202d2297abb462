// ReLU inside the device's passes gives the same bits as a separate ReLU before or after them. Needs a GPU.

#include <gtest/gtest.h>

#include "cuda_backend.h"
#include "layer_on_device.h"
#include "support/relu.h"

namespace keel::testing {
namespace {

template <typename T>
class CudaRelu : public ::testing::Test {};
TYPED_TEST_SUITE(CudaRelu, ElementTypes);

TYPED_TEST(CudaRelu, InAPassIsTheOneBesideIt) {
  for (const ActivationShape& shape : device_shapes())
    for (const Order order : kOrders) check_passes_with_relu<Cuda, TypeParam>(shape, order, 0);
}

TYPED_TEST(CudaRelu, WhereverTheGateLies) {
  for (const ActivationShape& shape : {ActivationShape{4, 64, 256, 1},
                                       {4, 64, 256, 4},
                                       {4, 64, 256, 16},
                                       {3, 64, 40, 8},
                                       {3, 40, 129, 5}})
    for (const Order order : kOrders) check_passes_with_relu<Cuda, TypeParam>(shape, order, 1);
}

/// Several runs of tiles between folds, the last one odd.
TEST(CudaRelu, OfManySamples) {
  check_passes_with_relu<Cuda, float>({3, 64, 100003, 4}, Order::contiguous, 0);
  check_passes_with_relu<Cuda, BFloat16>({3, 64, 100016, 1}, Order::channels_last, 0);
  check_passes_with_relu<Cuda, Half>({1, 512, 40016, 32}, Order::contiguous, 0);
}

/// Sums that overflow in float32 are computed again, with the same gate.
TEST(CudaRelu, OfSumsThatOverflow) {
  for (const Order order : kOrders) {
    check_passes_with_relu<Cuda, float>({3, 64, 100, 4}, order, 0, 3e37);
    check_passes_with_relu<Cuda, float>({3, 10, 100, 2}, order, 0, 3e37);
  }
}

/// Compares a step with ReLU inside to one without, whose gradient passes through a separate ReLU.
template <typename T>
void check_layer_with_relu(const ActivationShape& shape, Order order, bool in_halves) {
  SCOPED_TRACE(name(shape, order));
  const LayerMap map = Zca{1e-2};
  const auto x = converted<T>(random_activations(shape, 41), order),
             slope = converted<T>(random_activations(shape, 42, 0), order);
  LayerOnDevice<T> first(x, slope);
  first.forward(map);
  const auto output = relu(first.output.back());
  LayerOnDevice<T> apart(x, behind(slope, output)), fused(x, slope);
  const auto step = [&](LayerOnDevice<T>& layer, bool with_relu, const Stream& stream) {
    const Activations<T> y = layer.output.view().with_relu(with_relu);
    const Activations<const T> dL_dy = layer.dL_doutput.view(), in = layer.input.view();
    const auto gated = dL_dy.gated(with_relu ? y.data : nullptr);
    if (in_halves) {
      cuda::partial_moments<T>(in, nullptr, layer.moments.data(), stream);
      cuda::whiten_apply<T>(map, in, layer.moments.data(), nullptr, layer.weight.data(),
                            layer.bias.data(), layer.state(), y, stream);
      cuda::whiten_backward_sums<T>(gated, in, layer.state(), layer.sums.data(),
                                    layer.dL_dweight.data(), layer.dL_dbias.data(), stream);
      cuda::whiten_backward_apply<T>(map, Exact{}, gated, in, layer.weight.data(), layer.state(),
                                     layer.sums.data(), layer.moments.data(),
                                     layer.dL_dinput.view(), stream);
    } else {
      cuda::whiten<T>(map, in, layer.weight.data(), layer.bias.data(), layer.state(), y, stream);
      cuda::whiten_backward<T>(map, Exact{}, gated, in, layer.weight.data(), layer.state(),
                               layer.dL_dinput.view(), layer.dL_dweight.data(),
                               layer.dL_dbias.data(), stream);
    }
  };
  run_as_graph([&](const Stream& stream) {
    step(apart, false, stream);
    step(fused, true, stream);
  });
  EXPECT_EQ(different(fused.output.back().data, relu(apart.output.back()).data), 0);
  EXPECT_TRUE(same_bits(fused.dL_dinput.back().data, apart.dL_dinput.back().data));
  EXPECT_TRUE(same_bits(fused.dL_dweight.back(), apart.dL_dweight.back()));
  EXPECT_TRUE(same_bits(fused.dL_dbias.back(), apart.dL_dbias.back()));
}

TYPED_TEST(CudaRelu, InALayerIsTheOneBehindIt) {
  for (const ActivationShape& shape : {ActivationShape{4, 64, 256, 1},
                                       {4, 64, 256, 4},
                                       {4, 64, 256, 16},
                                       {5, 128, 24, 4},
                                       {2, 128, 72, 2},
                                       {2, 12, 50, 3},
                                       {3, 130, 96, 1}})
    for (const Order order : kOrders)
      for (const bool in_halves : {false, true})
        check_layer_with_relu<TypeParam>(shape, order, in_halves);
}

TEST(CudaRelu, ALayersActivations) {
  for (const std::int64_t groups : {1, 4, 16})
    for (const Order order : kOrders) {
      check_layer_with_relu<BFloat16>({128, 64, 1024, groups}, order, false);
      check_layer_with_relu<float>({128, 64, 1024, groups}, order, false);
    }
}

}  // namespace
}  // namespace keel::testing
