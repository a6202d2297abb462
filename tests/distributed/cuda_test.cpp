// Layers over several processes on a GPU. The processes are simulated: all have this one's batch, so a sum over them
// is a product. Needs a GPU.

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "libtorch/cuda_support.h"

namespace keel::test {
namespace {

nn::ProcessGroup all_alike(std::int64_t size) {
  return {0, size, [size](Tensor& tensor) { tensor.mul_(double(size)); }};
}

/// Output and running statistics of the first step.
Tensors first_step(nn::WhiteningOptions options, std::size_t which, const Tensor& x) {
  options.num_features = x.size(1);
  const Layer layer = layers(options)[which];
  scramble(layer);
  layer->to(x.device());
  if (x.scalar_type() == at::kDouble) layer->to(at::kDouble);
  const Tensor output = layer(x);
  return {output, layer->running_mean, layer->running_matrix, layer->kept()};
}

TEST(SynchronisedCuda, IsTheCpusTwin) {
  const Tensor x = activations({9, 12, 5, 3});
  for (const SpectralRule& rule : std::initializer_list<SpectralRule>{Exact{}, PowerIteration{}})
    for (std::size_t which = 0; which < 3; ++which)
      expect_twins(to_string(rule) + " " + std::to_string(which),
                   [&](const Tensors& in) {
                     return first_step(
                         {.group_size = 4, .rule = rule, .process_group = all_alike(3)}, which,
                         in[0]);
                   },
                   {x}, 1000, {at::kFloat, at::kDouble, at::kBFloat16});
}

TEST(SynchronisedCuda, EqualsOneProcessWithTheBatchRepeated) {
  const Tensor x = activations({7, 24, 4, 4}).to(at::kCUDA);
  for (std::size_t which = 0; which < 3; ++which) {
    const auto run = [&](const nn::ProcessGroup& group, const Tensor& batch) {
      const Tensor leaf = batch.detach().clone().requires_grad_(true);
      const Tensor y = first_step({.group_size = 12, .process_group = group}, which, leaf)[0];
      const Tensor along =
          random({7, 24, 4, 4}, 5).to(at::kCUDA).repeat({batch.size(0) / 7, 1, 1, 1});
      return std::pair(y.detach(), torch::autograd::grad({y}, {leaf}, {along})[0]);
    };
    const auto [y, dL_dx] = run(all_alike(3), x);
    const auto [truth, dL_dtruth] = run({}, x.repeat({3, 1, 1, 1}));
    EXPECT_LT(relative_error(y, truth.narrow(0, 0, 7)), 1e-10) << which;
    EXPECT_LT(relative_error(dL_dx, dL_dtruth.narrow(0, 0, 7)), 1e-10) << which;
  }
}

TEST(SynchronisedCuda, ABatchOfNothingTakesPart) {
  const Tensor full = activations({9, 8, 2}).to(at::kCUDA);
  const Tensor others = call_operator("keel::partial_moments", full, 2, c10::IValue())[0];
  // The other process has all samples, so its contribution is known beforehand.
  const nn::ProcessGroup group(0, 2, [&](Tensor& sums) {
    if (sums.size(0) == others.size(0)) sums += others.to(sums.scalar_type());
  });
  nn::ZcaWhitening layer({.num_features = 8, .groups = 2, .process_group = group}),
      alone({.num_features = 8, .groups = 2});
  layer->to(at::kCUDA);
  alone->to(at::kCUDA);
  const Tensor nothing = full.narrow(0, 0, 0).to(at::kFloat).requires_grad_(true);
  const Tensor y = layer->forward(nothing);
  y.sum().backward();
  alone->forward(full.to(at::kFloat));
  EXPECT_EQ(y.sizes(), nothing.sizes());
  EXPECT_EQ(nothing.grad().sizes(), nothing.sizes());
  EXPECT_LT(relative_error(layer->running_mean, alone->running_mean), 1e-6);
  EXPECT_LT(relative_error(layer->running_matrix, alone->running_matrix), 1e-5);
}

TEST(SynchronisedCuda, IsCapturedInAGraph) {
  nn::ZcaWhitening layer({.num_features = 16, .group_size = 8, .process_group = all_alike(2)});
  layer->to(at::kCUDA);
  const Tensor batch = activations({12, 16, 3, 3}, 1, at::kFloat).to(at::kCUDA);
  const Tensor along = random(batch.sizes(), 2, at::kFloat).to(at::kCUDA);
  const auto step = [&] {
    const Tensor x = batch.detach().requires_grad_(true);
    const Tensor y = layer->forward(x);
    return std::pair(y.detach(), torch::autograd::grad({y}, {x}, {along})[0]);
  };
  torch::cuda::synchronize();
  at::cuda::CUDAGraph graph;
  std::pair<Tensor, Tensor> captured;
  {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    for (int k = 0; k < 3; ++k) step();  // one-time work happens here
    torch::cuda::synchronize();
    graph.capture_begin();
    captured = step();
    graph.capture_end();
  }
  torch::cuda::synchronize();
  for (std::uint64_t seed = 5; seed < 8; ++seed) {
    batch.copy_(activations({12, 16, 3, 3}, seed, at::kFloat));
    graph.replay();
    torch::cuda::synchronize();
    const auto [y, dL_dx] = step();
    EXPECT_TRUE(torch::equal(captured.first, y)) << seed;
    EXPECT_TRUE(torch::equal(captured.second, dL_dx)) << seed;
  }
}

}  // namespace
}  // namespace keel::test
