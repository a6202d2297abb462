// The layers on CPU against CUDA, and CUDA's own topics: streams, autocast, mixed devices, memory. Needs a GPU.

#include <ATen/autocast_mode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "cuda_support.h"

namespace keel::test {
namespace {

const at::Device kDevice(at::kCUDA, 0);

/// A layer with the same state on CUDA, in that type.
Layer on_cuda(const Layer& layer, at::ScalarType type) {
  auto copy = std::dynamic_pointer_cast<nn::WhiteningImpl>(layer.module->clone());
  copy->to(kDevice);
  copy->to(type);
  return {layer.name, copy, layer.map};
}

Layer on_cpu(const Layer& layer, at::ScalarType type) {
  auto copy = std::dynamic_pointer_cast<nn::WhiteningImpl>(layer.module->clone());
  copy->to(type);
  return {layer.name, copy, layer.map};
}

Tensor ordered(const Tensor& x, bool channels_last) {
  return channels_last ? x.movedim(1, -1).contiguous().movedim(-1, 1) : x;
}

TEST(CudaLayers, OutputsAndGradients) {
  const std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> shapes = {
      {{40, 6}, 3}, {{5, 6, 7}, 6}, {{3, 16, 9, 5}, 4}, {{4, 64, 8, 8}, 64}, {{2, 66, 11, 11}, 33}};
  for (const auto& [sizes, d] : shapes)
    for (const bool channels_last : {false, true}) {
      const std::int64_t c = sizes[1], groups = c / d;
      const Tensor x = ordered(activations(sizes), channels_last);
      const Tensor weight = 1 + 0.3 * random({c}, 21), bias = random({c}, 22);
      for (const LayerMap& map :
           {LayerMap(Zca{1e-2}), LayerMap(keel::PcaDenoising{1e-2, LeadingCount{2}}),
            LayerMap(keel::PcaWhitening{1e-2, FullRank{}})})
        for (const SpectralRule& rule : {SpectralRule(Exact{}), SpectralRule(PowerIteration{})}) {
          std::ostringstream name;
          name << to_string(map) << " " << to_string(rule) << " " << at::IntArrayRef(sizes)
               << (channels_last ? " channels last" : "");
          expect_twins(
              name.str(),
              [&](const Tensors& in) {
                const Whitened w = whiten(in[0], in[1], in[2], groups, map, rule);
                EXPECT_EQ(w.output.strides(), in[0].strides());
                return Tensors{w.output, w.mean, w.covariance, w.layer_matrix, w.values, w.rank};
              },
              {x, weight, bias}, 1000.0 * double(d + 1));
        }
    }
}

TEST(CudaLayers, HalfActivations) {
  for (const auto type : {at::kHalf, at::kBFloat16})
    for (const bool channels_last : {false, true}) {
      // Rounded first, so that the comparison excludes the rounding of the input.
      const Tensor x = ordered(activations({8, 16, 9, 9}).to(type).to(at::kDouble), channels_last);
      for (const Layer& layer : layers({.num_features = 16, .group_size = 8, .eps = 1e-2})) {
        scramble(layer);
        SCOPED_TRACE(layer.name);
        layer->to(at::kDouble);
        const Tensor exact = layer(x);
        const Layer twin = on_cuda(layer, at::kFloat), host = on_cpu(layer, at::kFloat);
        const Tensor in = x.to(type), out = twin(in.to(kDevice)), own = host(in);
        EXPECT_EQ(out.scalar_type(), type);
        EXPECT_EQ(out.strides(), in.strides());
        expect_twins({test::on_cpu(out)}, {own.detach()}, {exact.detach()}, type, 2, "output");
      }
    }
}

TEST(CudaLayers, ReluInsideIsTheOneBehind) {
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16})
    for (const bool channels_last : {false, true})
      for (const auto& [channels, d] : {std::pair(64, 16), {64, 64}, {64, 4}, {12, 6}}) {
        const Tensor given =
            ordered(activations({8, channels, 9, 9}), channels_last).to(kDevice).to(type);
        const Tensor slope = torch::randn_like(given);
        for (const Layer& layer : layers({.num_features = channels, .group_size = d})) {
          scramble(layer);
          layer->to(kDevice);
          if (type == at::kDouble) layer->to(type);
          SCOPED_TRACE(layer.name + " " + c10::toString(type) + " " + std::to_string(d));
          for (const bool training : {true, false}) {
            layer->train(training);
            const auto step = [&](bool inside) {
              const Tensor x = given.detach().requires_grad_(true);
              layer->options.activation = inside ? nn::Activation::relu : nn::Activation::none;
              const Tensor y = inside ? layer(x) : layer(x).relu();
              Tensors all = torch::autograd::grad({y}, {x, layer->weight, layer->bias}, {slope});
              all.push_back(y.detach());
              return all;
            };
            const Tensors inside = step(true), apart = step(false);
            for (std::size_t k = 0; k < inside.size(); ++k)
              EXPECT_TRUE(torch::equal(inside[k], apart[k])) << k << training;
          }
        }
      }
}

TEST(CudaLayers, RunningStatisticsAndEvaluation) {
  for (const auto& momentum : {std::optional<double>(0.1), std::optional<double>()})
    for (const Layer& layer :
         layers({.num_features = 12, .group_size = 4, .eps = 1e-2, .momentum = momentum})) {
      SCOPED_TRACE(layer.name);
      scramble(layer);
      layer->to(at::kDouble);
      const Layer twin = on_cuda(layer, at::kDouble);
      for (const std::uint64_t step : {1, 2, 3}) {
        Tensor x = activations({6, 12, 5, 5}, step);
        if (step == 2) x[1][2][3][4] = NAN;  // leaves no trace
        layer(x);
        twin(x.to(kDevice));
      }
      for (const auto& buffer : layer->named_buffers()) {
        const Tensor other = test::on_cpu(twin->named_buffers()[buffer.key()]);
        EXPECT_TRUE(
            torch::allclose(other.to(at::kDouble), buffer.value().to(at::kDouble), 1e-9, 1e-9))
            << buffer.key();
      }
      EXPECT_EQ(twin->num_batches_tracked.item<std::int64_t>(), 2);
      layer->eval();
      twin->eval();
      const Tensor x = activations({3, 12, 4, 4}, 9);
      expect_twins(
          "eval",
          [&](const Tensors& in) { return Tensors{in[0].is_cuda() ? twin(in[0]) : layer(in[0])}; },
          {x}, 1e5, {at::kDouble});
    }
}

/// Output and input gradient of a new layer.
std::pair<Tensor, Tensor> step(const Tensor& x) {
  const Layer layer = on_cuda(layers({.num_features = x.size(1), .group_size = 16})[0], at::kFloat);
  const Tensor in = x.detach().clone().requires_grad_(true);
  const Tensor out = layer(in);
  return {out.detach(), torch::autograd::grad({out}, {in}, {x})[0]};
}

TEST(CudaLayers, DeterministicAndTheSameOnAnyStream) {
  const Tensor x = activations({16, 64, 17, 17}, 1, at::kFloat).to(kDevice);
  const auto first = step(x), second = step(x);
  EXPECT_TRUE(torch::equal(first.first, second.first));
  EXPECT_TRUE(torch::equal(first.second, second.second));
  const auto stream = c10::cuda::getStreamFromPool();
  torch::cuda::synchronize();
  std::pair<Tensor, Tensor> third;
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    third = step(x);
    stream.synchronize();
  }
  EXPECT_TRUE(torch::equal(first.first, third.first));
  EXPECT_TRUE(torch::equal(first.second, third.second));
}

TEST(CudaLayers, WorkWaitsOnItsOwnStreamOnly) {
  // The input is written on the side stream just before. A kernel on another stream would miss it.
  const Tensor x = activations({16, 64, 16, 16}, 1, at::kFloat).to(kDevice);
  const Tensor expected = std::get<1>(step(x));
  torch::cuda::synchronize();
  const auto stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  Tensor late = torch::full_like(x, NAN);
  for (int k = 0; k < 50; ++k) late.copy_(x);
  const Tensor got = std::get<1>(step(late));
  stream.synchronize();
  EXPECT_TRUE(torch::equal(got, expected));
}

TEST(CudaLayers, Autocast) {
  const auto mode = [](bool on) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
    at::autocast::set_autocast_enabled(at::kCUDA, on);
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
#else
    at::autocast::set_enabled(on);
    at::autocast::set_autocast_gpu_dtype(at::kBFloat16);
#endif
    if (!on) at::autocast::clear_cache();
  };
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(3, 16, 3).padding(1));
  convolution->to(kDevice);
  for (const SpectralRule& rule : {SpectralRule(Exact{}), SpectralRule(PowerIteration{3})}) {
    nn::ZcaWhitening layer({.num_features = 16, .group_size = 8, .rule = rule});
    layer->to(kDevice);
    const Tensor x = activations({8, 3, 12, 12}, 1, at::kFloat).to(kDevice);
    mode(true);
    const Tensor y = layer(convolution(x));
    mode(false);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_EQ(layer->running_matrix.scalar_type(), at::kFloat);
    y.to(at::kFloat).square().sum().backward();
    EXPECT_TRUE(all_finite(convolution->weight.grad()));
    EXPECT_EQ(layer->weight.grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(all_finite(layer->weight.grad()));
  }
}

TEST(CudaLayers, MixedDevicesAreNamed) {
  const Tensor host = activations({4, 6, 5}, 1, at::kFloat), x = host.to(kDevice);
  const Tensor matrix = torch::eye(3).expand({2, 3, 3}), numbers = torch::ones({6});
  EXPECT_TRUE(fails_with("keel::affine: expected matrix on cuda:0, got one on cpu",
                         [&] { affine(x, matrix); }));
  EXPECT_TRUE(fails_with("keel::affine: expected bias on cpu, got one on cuda:0",
                         [&] { affine(host, matrix, {}, numbers.to(kDevice)); }));
  EXPECT_TRUE(fails_with("keel::whiten: expected weight on cuda:0, got one on cpu",
                         [&] { whiten(x, numbers, {}, 2, Zca{}); }));
  EXPECT_TRUE(fails_with("keel::cross_moments: expected right on cuda:0, got one on cpu",
                         [&] { call_operator("keel::cross_moments", x, host, c10::IValue(), 2); }));
  const auto s = layer_matrix(moments(x, 2).covariance, Zca{});
  EXPECT_TRUE(
      fails_with("keel::layer_matrix_backward: expected rank on cuda:0, got one on cpu", [&] {
        call_operator("keel::layer_matrix_backward", s.matrix, s.matrix, s.values, s.vectors,
                      s.rank.cpu(), "zca", "exact");
      }));
  nn::ZcaWhitening layer({.num_features = 6});
  EXPECT_TRUE(fails_with("expected weight on cuda:0, got one on cpu", [&] { layer(x); }));
}

/// Peak memory in bytes over forward and backward, beyond what was allocated before.
std::int64_t peak(const std::function<Tensor(const Tensor&)>& layer, const Tensor& input) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const Tensor x = input.detach().requires_grad_(true), slope = torch::ones_like(input);
  torch::autograd::grad({layer(x)}, {x}, {slope});  // one-time work happens here
  // LibTorch's backward thread frees the last tensors of a call after it has returned. Only then does it begin the next.
  const auto wait_for_backward_thread = [] {
    const Tensor one = torch::ones({1}, at::TensorOptions(kDevice).requires_grad(true));
    torch::autograd::grad({one * one}, {one});
    torch::cuda::synchronize();
  };
  std::int64_t largest = 0;
  for (int call = 0; call < 5; ++call) {
    wait_for_backward_thread();
    allocator::resetPeakStats(0);
    const std::int64_t before = allocator::getDeviceStats(0).allocated_bytes[0].current;
    const Tensor gradient = torch::autograd::grad({layer(x)}, {x}, {slope})[0];
    largest = std::max(largest, allocator::getDeviceStats(0).allocated_bytes[0].peak - before);
  }
  return largest;
}

TEST(CudaLayers, PeakMemoryIsBatchNorms) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const bool channels_last : {false, true}) {
      const Tensor x = ordered(torch::randn({64, 64, 32, 32}, at::TensorOptions(kDevice)).to(type),
                               channels_last);
      torch::nn::BatchNorm2d norm(64);
      norm->to(kDevice);
      const std::int64_t peer = peak([&](const Tensor& y) { return norm(y); }, x);
      for (const std::int64_t d : {4, 16, 64})
        for (const Layer& layer : layers({.num_features = 64, .group_size = d})) {
          const Layer ours = on_cuda(layer, at::kFloat);
          EXPECT_LT(double(peak(ours, x)), 1.05 * double(peer)) << layer.name << ", d = " << d;
        }
    }
}

}  // namespace
}  // namespace keel::test
