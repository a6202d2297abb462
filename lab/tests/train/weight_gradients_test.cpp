// Gradients of convolutions' weights on a second stream, against autograd's on the same numbers.

#include "lab/models/weight_gradients.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/conv.h>

#include <vector>

#include "lab/train/graph.h"
#include "lab/train/options.h"
#include "lab/train/step.h"

namespace keel::lab {
namespace {

using torch::Tensor;

TEST(WeightGradients, OfACapturedPassAreAutogradsToTheLastBit) {
  if (make_weight_gradients() == nullptr || !has_cuda()) GTEST_SKIP() << "no CUDA device";
  const torch::Device device = torch::kCUDA;
  const DeviceScope scope(device);
  TrainOptions deterministic;
  deterministic.deterministic = true;
  const Precision precision(deterministic, device);
  torch::manual_seed(5);
  const auto narrow = torch::dtype(torch::kBFloat16).device(device);
  // More than are held at a time, of both strides; the input needs no gradient, as images do not.
  const std::vector<std::int64_t> strides{1, 2, 1, 1, 2, 1, 1}, kernels{3, 3, 1, 3, 1, 3, 3};
  std::vector<Tensor> weights;
  for (const std::int64_t kernel : kernels)
    weights.push_back((torch::randn({16, 16, kernel, kernel}, narrow) / 8).requires_grad_(true));
  const Tensor input = torch::randn({8, 16, 16, 16}, narrow);
  const auto pass = [&](const auto& convolve) {
    for (Tensor& weight : weights) weight.mutable_grad().reset();
    Tensor x = input;
    for (std::size_t i = 0; i < weights.size(); ++i)
      x = convolve(x, weights[i], strides[i], kernels[i] / 2, i % 3 == 2).relu();
    x.to(torch::kFloat).square().sum().backward();
  };
  pass([](const Tensor& x, const Tensor& weight, std::int64_t stride, std::int64_t padding, bool) {
    return torch::conv2d(x, weight, {}, stride, padding);
  });
  std::vector<Tensor> expected;
  for (const Tensor& weight : weights) expected.push_back(weight.grad().clone());

  const auto apart = [&](WeightGradients& gradients) {
    pass([&](const auto&... given) { return gradients.convolve(given...); });
    for (const Tensor& weight : weights) EXPECT_FALSE(weight.grad().defined());
    gradients.compute_late();
    gradients.join();
  };
  const auto expect_same = [&](const char* how) {
    synchronise(device);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      ASSERT_GT(expected[i].abs().max().item<float>(), 0) << i;
      EXPECT_TRUE(weights[i].grad().equal(expected[i])) << how << " " << i;
    }
  };
  apart(*make_weight_gradients());
  expect_same("not captured");
  const std::shared_ptr<WeightGradients> captured = make_weight_gradients();
  const auto graph = capture([&] { apart(*captured); });
  for (const Tensor& weight : weights) weight.grad().fill_(7);
  graph->replay();
  expect_same("captured");
}

}  // namespace
}  // namespace keel::lab
