// ReLU inside affine, cross_moments and whiten gives the same bits as a separate ReLU before or after them.

#include <gtest/gtest.h>

#include <utility>

#include "keel/whiten.h"
#include "support/errors.h"
#include "support/finite_differences.h"
#include "support/layer.h"
#include "support/relu.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
class ReluOf : public ::testing::Test {};
TYPED_TEST_SUITE(ReluOf, ElementTypes);

TYPED_TEST(ReluOf, InAPassIsTheOneBesideIt) {
  for (const ActivationShape& shape : activation_shapes())
    for (const Order order : kOrders)
      for (const std::size_t skip : {0, 1})
        check_passes_with_relu<Cpu, TypeParam>(shape, order, skip);
}

TEST(Relu, TheReferencesAreTheSame) {
  for (const Order order : kOrders) {
    const ActivationShape shape{3, 6, 5, 2};
    const auto x = converted<double>(random_activations(shape, 35), order);
    const auto gate = random_gate<double>(shape, order, 36);
    const auto slope =
        poisoned_behind(converted<double>(random_activations(shape, 37, 0), order), gate);
    const auto masked = behind(slope, gate);
    const Coefficients<double> given(shape);
    ActivationBuffer<double> plain(shape, order), fused(shape, order);
    reference::affine(given.per_group(given.matrix), given.mean.data(), given.bias.data(), x.view(),
                      plain.view());
    reference::affine(given.per_group(given.matrix), given.mean.data(), given.bias.data(), x.view(),
                      fused.view().with_relu());
    EXPECT_TRUE(bitwise_equal(fused.data, relu(plain).data));
    reference::affine(given.per_group(given.matrix), given.mean.data(), given.bias.data(), x.view(),
                      fused.view().plus(x.data.data()).with_relu());
    EXPECT_TRUE(bitwise_equal(fused.data, relu(sum(plain, x)).data));
    const auto run = [&](const Activations<const double>& dL_doutput) {
      std::vector<double> sum(given.mean), cross(given.matrix);
      reference::cross_moments(dL_doutput, x.view(), given.mean.data(), sum.data(),
                               contiguous(cross.data(), shape.groups, shape.group_size()));
      ActivationBuffer<double> back(shape, order);
      reference::affine_backward(given.per_group(given.matrix), dL_doutput,
                                 given.per_group(given.gradient), given.bias.data(), x.view(),
                                 given.mean.data(), back.view());
      return std::tuple(sum, cross, back.data);
    };
    EXPECT_EQ(run(slope.view().gated(gate.data.data())), run(masked.view()));
  }
}

const LayerMap kReluMaps[] = {Zca{1e-2}, PcaDenoising{1e-2, LeadingCount{2}}, PcaWhitening{1e-2}};

template <typename T>
LayerOnHost<T> relu_layer(const ActivationShape& shape, Order order) {
  return {converted<T>(random_activations(shape, 41), order),
          converted<T>(random_activations(shape, 42, 0), order)};
}

void step_of_reference(LayerOnHost<double>& layer, const LayerMap& map) {
  reference::whiten(map, std::as_const(layer.input).view(), layer.weight.data(), layer.bias.data(),
                    layer.state(), layer.output.view().with_relu());
}

TEST(Relu, BehindTheReferencesLayerHasItsDerivative) {
  for (const Order order : kOrders)
    for (const LayerMap& map : kReluMaps) {
      SCOPED_TRACE(to_string(map));
      auto layer = relu_layer<double>({3, 6, 5, 2}, order);
      step_of_reference(layer, map);
      reference::whiten_backward(
          map, Analytic{}, std::as_const(layer.dL_doutput).view().gated(layer.output.data.data()),
          std::as_const(layer.input).view(), layer.weight.data(), layer.state(),
          layer.dL_dinput.view(), layer.dL_dweight.data(), layer.dL_dbias.data());
      const auto truth = layer;
      int negative = 0;
      for (const double y : truth.output.data) negative += y == 0;
      EXPECT_GT(negative, 20);
      const auto expect_slope = [&](double& at, double expected) {
        const double here = at, step = 1e-4;
        const auto loss = [&](double offset) {
          at = here + offset;
          step_of_reference(layer, map);
          at = here;
          double sum = 0;
          for (std::size_t k = 0; k < layer.output.data.size(); ++k) {
            // Finite differences are meaningless across the corner.
            EXPECT_EQ(layer.output.data[k] == 0, truth.output.data[k] == 0);
            sum += layer.output.data[k] * layer.dL_doutput.data[k];
          }
          return sum;
        };
        EXPECT_NEAR(expected, central_difference(loss, step), by_differences(100));
      };
      for (std::size_t k = 0; k < layer.input.data.size(); k += 7)
        expect_slope(layer.input.data[k], truth.dL_dinput.data[k]);
      for (std::size_t c = 0; c < 6; ++c) {
        expect_slope(layer.weight[c], truth.dL_dweight[c]);
        expect_slope(layer.bias[c], truth.dL_dbias[c]);
      }
    }
}

/// Compares a step with ReLU inside to one without, whose gradient passes through a separate ReLU.
TYPED_TEST(ReluOf, InALayerIsTheOneBehindIt) {
  using T = TypeParam;
  for (const ActivationShape& shape :
       {ActivationShape{4, 12, 25, 3}, {40, 5, 1, 1}, {3, 64, 67, 4}})
    for (const Order order : kOrders)
      for (const LayerMap& map : kReluMaps) {
        SCOPED_TRACE(name(shape, order) + " " + to_string(map));
        auto fused = relu_layer<T>(shape, order), apart = fused;
        const auto x = std::as_const(fused.input).view();
        const auto slope = std::as_const(fused.dL_doutput).view();
        apart.forward(map);
        apart.output = relu(apart.output);
        apart.dL_doutput = behind(apart.dL_doutput, apart.output);
        apart.backward(map, Exact{});
        cpu::whiten<T>(map, x, fused.weight.data(), fused.bias.data(), fused.state(),
                       fused.output.view().with_relu());
        cpu::whiten_backward<T>(map, Exact{}, slope.gated(fused.output.data.data()), x,
                                fused.weight.data(), fused.state(), fused.dL_dinput.view(),
                                fused.dL_dweight.data(), fused.dL_dbias.data());
        EXPECT_EQ(different(fused.output.data, apart.output.data), 0);
        EXPECT_TRUE(bitwise_equal(fused.dL_dinput.data, apart.dL_dinput.data));
        EXPECT_TRUE(bitwise_equal(fused.dL_dweight, apart.dL_dweight));
        EXPECT_TRUE(bitwise_equal(fused.dL_dbias, apart.dL_dbias));
      }
}

TEST(Relu, IsRefusedWhereItWouldBePassedOver) {
  auto layer = relu_layer<float>({2, 8, 5, 2}, Order::contiguous);
  const auto x = std::as_const(layer.input).view();
  const auto gated = x.gated(layer.input.data.data());
  const auto cross = layer.per_group(layer.covariance);
  EXPECT_TRUE(refuses({"keel::moments: expected input without a gate"},
                      [&] { cpu::moments<float>(gated, layer.mean.data(), cross); }));
  EXPECT_TRUE(refuses({"keel::cross_moments: expected right without a gate"}, [&] {
    cpu::cross_moments<float>(x, gated, nullptr, layer.mean.data(), cross);
  }));
  EXPECT_TRUE(refuses({"keel::affine: expected input without a gate"}, [&] {
    cpu::affine<float>(cross, nullptr, nullptr, gated, layer.output.view());
  }));
  for (const auto& [view, what] :
       {std::pair(layer.dL_dinput.view().with_relu(), "with ReLU"),
        {layer.dL_dinput.view().plus(layer.input.data.data()), "with a residual"}})
    EXPECT_TRUE(refuses({"keel::affine_backward: expected dL_dinput", what}, [&, to = view] {
      cpu::affine_backward<float>(cross, x, {}, nullptr, {}, nullptr, to);
    }));
}

}  // namespace
}  // namespace keel::testing
