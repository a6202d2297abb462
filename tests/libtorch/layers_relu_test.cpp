// Layers with ReLU inside give the same bits as the same layers followed by torch's ReLU.

#include <gtest/gtest.h>

#include <sstream>

#include "layers_support.h"

namespace keel::test {
namespace {

/// torch's ReLU, which some LibTorch releases lack for float16 on the CPU.
Tensor relu_of_torch(const Tensor& x) {
  return x.scalar_type() == at::kHalf ? x.to(at::kFloat).relu().to(at::kHalf) : x.relu();
}

/// The output and the gradients of input, weight and bias.
Tensors step(const Layer& layer, bool inside, const Tensor& given, const Tensor& slope) {
  const Tensor x = given.detach().clone(at::MemoryFormat::Preserve).requires_grad_(true);
  layer->options.activation = inside ? nn::Activation::relu : nn::Activation::none;
  const Tensor y = inside ? layer(x) : relu_of_torch(layer(x));
  Tensors all = torch::autograd::grad({y}, {x, layer->weight, layer->bias}, {slope});
  all.insert(all.begin(), y.detach());
  return all;
}

void expect_same_bits(const Layer& layer, const Tensor& x) {
  const Tensor slope = random(x.sizes(), 9).to(x.scalar_type());
  const Tensors inside = step(layer, true, x, slope), apart = step(layer, false, x, slope);
  for (std::size_t k = 0; k < inside.size(); ++k) {
    EXPECT_TRUE(torch::equal(inside[k], apart[k])) << layer.name << " " << k;
    EXPECT_EQ(inside[k].strides(), apart[k].strides()) << layer.name << " " << k;
  }
  EXPECT_GT((inside[0] == 0).sum().item<std::int64_t>(), x.numel() / 10);
}

TEST(LayersRelu, IsTheOneBehindThem) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const Tensor& x :
         {activations({40, 12}, 1, type), activations({5, 12, 7}, 1, type),
          activations({3, 12, 5, 4}, 1, type),
          activations({3, 12, 5, 4}, 1, type).contiguous(at::MemoryFormat::ChannelsLast)})
      for (const Layer& layer : layers({.num_features = 12, .group_size = 4})) {
        scramble(layer);
        if (type == at::kDouble) layer->to(type);
        SCOPED_TRACE(c10::toString(type));
        expect_same_bits(layer, x);
        layer->eval();
        expect_same_bits(layer, x);
      }
}

TEST(LayersRelu, GradientsInAnotherOrderThanTheOutput) {
  for (const Layer& layer : layers({.num_features = 12, .group_size = 4})) {
    const Tensor x = activations({3, 12, 5, 4}, 1, at::kFloat);
    const Tensor slope = random(x.sizes(), 9, at::kFloat);
    const Tensors plain = step(layer, true, x, slope);
    const Tensors turned = step(layer, true, x, slope.contiguous(at::MemoryFormat::ChannelsLast));
    for (std::size_t k = 0; k < plain.size(); ++k) EXPECT_TRUE(torch::equal(plain[k], turned[k]));
  }
}

TEST(LayersRelu, AResidualIsAddedBeforeIt) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const bool channels_last : {false, true})
      for (const Layer& layer : layers({.num_features = 12, .group_size = 4}))
        for (const bool training : {true, false})
          for (const auto activation : {nn::Activation::relu, nn::Activation::none}) {
            scramble(layer);
            if (type == at::kDouble) layer->to(type);
            layer->train(training);
            SCOPED_TRACE(layer.name + " " + c10::toString(type));
            const auto order =
                channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
            const Tensor x = activations({3, 12, 5, 4}, 1, type).contiguous(order);
            const Tensor past = random(x.sizes(), 8).to(type).contiguous(order);
            const Tensor slope = random(x.sizes(), 9).to(type);
            const bool relu = activation == nn::Activation::relu;
            const Tensor in = x.detach().requires_grad_(true),
                         residual = past.detach().requires_grad_(true);
            const Tensor y = layer->forward_then(activation, in, residual), plain = layer(in);
            const Tensor apart = relu ? (plain + residual).relu() : plain + residual;
            if (type == at::kBFloat16) {  // rounded once more apart
              const Tensor error = 1.01 * 0x1p-8 * (plain.abs().to(at::kFloat) + 2 * apart.abs());
              EXPECT_TRUE(((y - apart).abs() <= error).all().item<bool>());
            } else {
              EXPECT_TRUE(torch::equal(y, apart));
            }
            // The gradient follows the sign of its own output.
            const Tensor open =
                relu ? torch::where(y <= 0, torch::zeros_like(slope), slope) : slope;
            const auto grads =
                torch::autograd::grad({y}, {in, layer->weight, layer->bias, residual}, {slope});
            const auto expected =
                torch::autograd::grad({plain}, {in, layer->weight, layer->bias}, {open});
            for (std::size_t k = 0; k < expected.size(); ++k)
              EXPECT_TRUE(torch::equal(grads[k], expected[k])) << k;
            EXPECT_TRUE(torch::equal(grads[3], open));
          }
}

TEST(LayersRelu, SecondDerivativesAreThoseOfReluBehind) {
  const Layer layer = layers({.num_features = 6, .group_size = 3, .rank = FullRank{}})[0];
  layer->to(at::kDouble);
  scramble(layer);
  const Tensor slope = random({20, 6}, 9), direction = random({20, 6}, 10);
  const auto second = [&](bool inside) {
    const Tensor x = activations({20, 6}).requires_grad_(true);
    layer->options.activation = inside ? nn::Activation::relu : nn::Activation::none;
    const Tensor y = inside ? layer(x) : layer(x).relu();
    const Tensor first = torch::autograd::grad({y}, {x}, {slope}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({first}, {x, layer->weight}, {direction});
  };
  const Tensors inside = second(true), apart = second(false);
  for (std::size_t k = 0; k < 2; ++k) EXPECT_LT(relative_error(inside[k], apart[k]), 1e-12);
}

TEST(LayersRelu, NaNStaysNaN) {
  for (const Layer& layer : layers({.num_features = 6, .group_size = 3})) {
    layer->options.activation = nn::Activation::relu;
    const Tensor x = activations({20, 6}, 1, at::kFloat);
    x[3][1] = std::numeric_limits<float>::quiet_NaN();
    const Tensor y = layer(x);
    EXPECT_TRUE(y.narrow(1, 0, 3).isnan().all().item<bool>());
    EXPECT_TRUE(y.narrow(1, 3, 3).isfinite().all().item<bool>());
  }
}

TEST(LayersRelu, AnOutputThatWasChangedIsNoGate) {
  const Layer layer = layers({.num_features = 6, .activation = nn::Activation::relu})[0];
  const Tensor y = layer(activations({20, 6}, 1, at::kFloat).requires_grad_(true));
  y.add_(1);
  try {
    y.sum().backward();
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("modified by an inplace operation"),
              std::string::npos);
  }
}

TEST(LayersRelu, IsShownCopiedAndNotFolded) {
  for (const Layer& layer : layers({.num_features = 6, .activation = nn::Activation::relu})) {
    std::ostringstream text;
    layer->pretty_print(text);
    EXPECT_NE(text.str().find("activation=relu"), std::string::npos);
    const auto copy = std::dynamic_pointer_cast<nn::WhiteningImpl>(layer->clone());
    EXPECT_EQ(copy->options.activation, nn::Activation::relu);
    layer(activations({20, 6}, 1, at::kFloat));
    layer->eval();
    const auto refuses = [&](const auto& fold) {
      try {
        fold();
        ADD_FAILURE() << "no error";
      } catch (const c10::Error& error) {
        EXPECT_NE(std::string(error.what()).find("without an activation"), std::string::npos);
      }
    };
    refuses([&] { layer->fold_into(torch::nn::Linear(3, 6)); });
    refuses([&] { layer->as_conv1x1(); });
  }
}

}  // namespace
}  // namespace keel::test
