// A training step with a whitening layer, captured in a CUDA graph and replayed, against the same steps run eagerly.
// Needs a GPU.

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "cuda_support.h"

namespace keel::test {
namespace {

const at::Device kDevice(at::kCUDA, 0);

/// Convolution, whitening, ReLU, mean over positions, linear layer; a step of plain gradient descent.
struct Network {
  torch::nn::Conv2d convolution{torch::nn::Conv2dOptions(3, 8, 3).padding(1)};
  Layer layer;
  torch::nn::Linear linear{8, 5};
  Tensors parameters;

  explicit Network(const Layer& given) : layer(given) {
    std::uint64_t seed = 40;
    const torch::NoGradGuard no_grad;
    for (const auto& module : std::initializer_list<std::shared_ptr<torch::nn::Module>>{
             convolution.ptr(), layer.module, linear.ptr()}) {
      module->to(kDevice);
      for (const Tensor& parameter : module->parameters()) {
        parameter.copy_(parameter + 0.2 * random(parameter.sizes(), ++seed).to(kDevice));
        parameters.push_back(parameter);
      }
    }
  }

  Tensor step(const Tensor& images, const Tensor& labels) {
    const Tensor features = torch::relu(layer(convolution(images))).mean({2, 3});
    const Tensor loss = torch::nll_loss(torch::log_softmax(linear(features), 1), labels);
    const auto gradients = torch::autograd::grad({loss}, parameters);
    const torch::NoGradGuard no_grad;
    for (std::size_t k = 0; k < parameters.size(); ++k) parameters[k].add_(gradients[k], -0.05);
    return loss.detach();
  }

  /// Parameters and running statistics.
  Tensors state() const {
    Tensors all = parameters;
    for (const Tensor& buffer : layer->buffers()) all.push_back(buffer);
    return all;
  }
};

struct Batches {
  Tensor images(std::uint64_t step) const {
    return random({16, 3, 8, 8}, 60 + step, at::kFloat).to(kDevice);
  }
  Tensor labels(std::uint64_t step) const {
    return torch::arange(std::int64_t(step), std::int64_t(step) + 16).remainder(5).to(kDevice);
  }
};

void expect_replay_equals_eager(const nn::WhiteningOptions& options, std::size_t which) {
  const Batches batches;
  torch::manual_seed(5);  // both networks start as the same one
  Network eager(layers(options)[which]);
  torch::manual_seed(5);
  Network captured(layers(options)[which]);
  SCOPED_TRACE(eager.layer.name);
  std::vector<double> expected;
  for (std::uint64_t k = 0; k < 4; ++k)
    expected.push_back(eager.step(batches.images(k), batches.labels(k)).item<double>());

  const Tensor images = batches.images(0).clone(), labels = batches.labels(0).clone();
  Tensors before;
  for (const Tensor& tensor : captured.state()) before.push_back(tensor.detach().clone());
  torch::cuda::synchronize();  // the side stream waits for nothing else
  at::cuda::CUDAGraph graph;
  Tensor loss;
  {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    for (int k = 0; k < 3; ++k) captured.step(images, labels);  // one-time work happens here
    torch::cuda::synchronize();
    graph.capture_begin();
    loss = captured.step(images, labels);
    graph.capture_end();
    const torch::NoGradGuard no_grad;
    const Tensors now = captured.state();
    for (std::size_t k = 0; k < now.size(); ++k) now[k].copy_(before[k]);
    torch::cuda::synchronize();
  }
  for (std::uint64_t k = 0; k < 4; ++k) {
    images.copy_(batches.images(k));
    labels.copy_(batches.labels(k));
    graph.replay();
    EXPECT_NEAR(loss.item<double>(), expected[k], 1e-5 * std::abs(expected[k])) << "step " << k;
  }
  const Tensors wanted = eager.state(), got = captured.state();
  for (std::size_t k = 0; k < wanted.size(); ++k)
    EXPECT_TRUE(torch::allclose(got[k].to(at::kDouble), wanted[k].to(at::kDouble), 1e-4, 1e-5))
        << "tensor " << k;
}

TEST(CudaGraph, ATrainingStepReplays) {
  for (const std::size_t which : {0, 1})
    expect_replay_equals_eager({.num_features = 8, .group_size = 4}, which);
  expect_replay_equals_eager(
      {.num_features = 8, .momentum = std::nullopt, .rule = PowerIteration{}}, 0);
}

TEST(CudaGraph, MatrixFunctionsAndTheirGradientsReplay) {
  for (const std::int64_t n : {5, 64, 100}) {
    SCOPED_TRACE("n = " + std::to_string(n));
    const Tensor x = random({3, n, 2 * n}, 7, at::kFloat).to(kDevice);
    const Tensor m = (x.matmul(x.mT()) / double(2 * n)).contiguous();
    const auto slope = [](const Tensor& matrix) {
      const Tensor leaf = matrix.detach().requires_grad_(true);
      const auto [values, vectors] = eigh(leaf, Taylor{});
      return torch::autograd::grad(
          {(values.exp().unsqueeze(-2) * vectors).matmul(vectors.mT()).sum() +
           inv_sqrtm(leaf).sum()},
          {leaf})[0];
    };
    const Tensor expected = slope(m + m);
    Tensor still = m.clone(), result;
    torch::cuda::synchronize();
    at::cuda::CUDAGraph graph;
    {
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      for (int k = 0; k < 3; ++k) slope(still);
      torch::cuda::synchronize();
      graph.capture_begin();
      result = slope(still);
      graph.capture_end();
    }
    still.copy_(m + m);
    graph.replay();
    EXPECT_LT(relative_error(result.cpu(), expected.cpu()), 1e-5);
  }
}

TEST(CudaGraph, HigherDerivativesOfEighAreRightOrNan) {
  const std::vector<double> distinct = {2, 1.3, 0.7, 0.2}, repeated = {2, 1, 1, 0.5};
  const Tensor m = torch::stack({with_spectrum(distinct), with_spectrum(repeated)}).to(kDevice);
  const Tensor direction = random_symmetric({4, 4}, 5).to(kDevice);
  // The loss sees only whole eigenspaces or not: the second derivatives of each matrix are right, or an error.
  const auto loss = [&](const Tensor& x, bool whole) {
    const auto [values, vectors] = eigh(x);
    if (whole) return values.pow(3).sum();
    return ((vectors * values.log().unsqueeze(-2)).matmul(vectors.mT()) * direction).sum();
  };
  const auto derivatives = [&](const Tensor& matrix, bool whole, int orders) {
    const Tensor x = matrix.detach().requires_grad_(true);
    std::vector<Tensor> found;
    Tensor y = loss(x, whole);
    for (int order = 1; order <= orders; ++order) {
      const Tensor slope = torch::autograd::grad({y}, {x}, {}, true, true)[0];
      found.push_back((slope * direction).sum({-2, -1}).detach());
      y = (slope * direction).sum();
    }
    return torch::stack(found);
  };
  for (const bool whole : {true, false}) {
    constexpr int kOrders = 4;
    Tensor result;
    torch::cuda::synchronize();
    at::cuda::CUDAGraph graph;
    {
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      for (int k = 0; k < 3; ++k) derivatives(m[0], whole, kOrders);
      torch::cuda::synchronize();
      graph.capture_begin();
      result = derivatives(m, whole, kOrders);
      graph.capture_end();
    }
    graph.replay();
    const Tensor found = result.cpu();
    const Tensor expected = derivatives(m[0], whole, kOrders).cpu();
    for (int order = 1; order <= kOrders; ++order) {
      SCOPED_TRACE("derivative " + std::to_string(order) + (whole ? " of cubes" : " of log"));
      // The fourth one of cubes is zero.
      EXPECT_LT((found[order - 1][0] - expected[order - 1]).abs().item<double>(),
                1e-9 * expected.abs().max().item<double>());
      EXPECT_EQ(std::isnan(found[order - 1][1].item<double>()), order > (whole ? 2 : 1));
    }
    const int known = whole ? 2 : 1;
    EXPECT_LT(relative_error(found.narrow(0, 0, known).select(1, 1),
                             derivatives(m[1], whole, known).cpu()),
              1e-12);
    EXPECT_THROW(derivatives(m[1], whole, known + 1), c10::Error);
  }
}

}  // namespace
}  // namespace keel::test
