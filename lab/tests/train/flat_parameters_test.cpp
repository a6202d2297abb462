#include "lab/train/flat_parameters.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <limits>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

using torch::Tensor;

/// Convolution, norm and linear layer in float64, seeded.
torch::nn::Sequential network() {
  torch::manual_seed(3);
  torch::nn::Sequential layers(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 5, 3)),
                               torch::nn::BatchNorm2d(5), torch::nn::ReLU(),
                               torch::nn::Conv2d(torch::nn::Conv2dOptions(5, 4, 1)),
                               torch::nn::Flatten(), torch::nn::Linear(4 * 4 * 4, 2));
  layers->to(torch::kDouble);
  return layers;
}

Tensor input(std::int64_t step) {
  auto generator = at::detail::createCPUGenerator(100 + step);
  return torch::randn({8, 3, 6, 6}, generator, torch::kDouble);
}

class DescendTest : public ::testing::TestWithParam<bool> {};

TEST_P(DescendTest, IsPyTorchsSgd) {
  auto mine = network(), theirs = network();
  FlatParameters flat(*mine, /*channels_last=*/GetParam());
  torch::optim::SGD sgd(theirs->parameters(),
                        torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-2));
  const Tensor rate = torch::zeros({}, torch::kDouble), halted = torch::zeros({}, torch::kBool);
  for (std::int64_t step = 0; step < 6; ++step) {
    const double now = 0.05 / double(1 + step);
    rate.fill_(now);
    static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options()).lr(now);
    const Tensor x =
        GetParam() ? input(step).contiguous(at::MemoryFormat::ChannelsLast) : input(step);
    flat.clear_gradients();
    mine->forward(x).square().mean().backward();
    flat.gather_gradients();
    descend(flat, rate, halted, 0.9, 1e-2);
    sgd.zero_grad();
    theirs->forward(input(step)).square().mean().backward();
    sgd.step();
  }
  const auto expected = theirs->named_parameters();
  for (const auto& item : mine->named_parameters())
    EXPECT_TRUE(torch::allclose(item.value(), expected[item.key()], 1e-11, 1e-13)) << item.key();
}

INSTANTIATE_TEST_SUITE_P(Orders, DescendTest, ::testing::Bool());

TEST(FlatParametersTest, AMissingGradientIsZero) {
  auto module = network();
  FlatParameters flat(*module, false);
  flat.gradients.fill_(3);
  flat.gather_gradients();
  EXPECT_EQ(flat.gradients.abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace keel::lab
