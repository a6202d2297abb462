// A whitening layer's output that is used twice: the two gradients are added and masked in one pass, with the same bits.
// Most tests are skipped without a GPU or without the kernels.

#include "lab/models/fused_fork.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <limits>
#include <set>

#include "lab/models/norm.h"
#include "lab/models/resnet.h"
#include "lab/train/fused_step.h"
#include "lab/train/graph.h"
#include "lab/train/step.h"

namespace keel::lab {
namespace {

using torch::Tensor;
using torch::autograd::Node;

class FusedForkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
    if (!has_fused_step()) GTEST_SKIP() << "a build without the lab's CUDA kernels";
    torch::manual_seed(11);
  }
};

Tensor channels_last(const Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); }

Tensor random(at::IntArrayRef shape, torch::Dtype type = torch::kBFloat16) {
  return channels_last(torch::randn(shape, torch::device(torch::kCUDA)).to(type));
}

std::shared_ptr<keel::nn::WhiteningImpl> whitening(const std::string& kind, std::int64_t channels) {
  const auto norm = make_norm({.kind = kind, .group_size = channels / 4}, channels);
  const auto layer = std::dynamic_pointer_cast<keel::nn::WhiteningImpl>(norm);
  const torch::NoGradGuard no_grad;
  layer->weight.copy_(torch::linspace(-1, 2, channels));
  layer->bias.copy_(torch::linspace(1, -1, channels));
  return layer;
}

/// Which of the two outputs have a gradient.
struct Uses {
  bool through, past;
};
constexpr Uses kAll[] = {{true, true}, {true, false}, {false, true}};

/// Backward through the outputs that are used, with the gradients a and b.
void go_back(const Forked& y, const Uses& uses, const Tensor& a, const Tensor& b) {
  std::vector<Tensor> outputs, along;
  if (uses.through) outputs.push_back(y.through), along.push_back(a);
  if (uses.past) outputs.push_back(y.past), along.push_back(b);
  torch::autograd::backward(outputs, along);
}

/// The gradient of y's one consumer in place of two.
Tensor added(const Uses& uses, const Tensor& a, const Tensor& b) {
  return !uses.past ? a : !uses.through ? b : a + b;
}

TEST_F(FusedForkTest, AddsAndMasksAsTorchDoes) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const auto type : {torch::kBFloat16, torch::kFloat})
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{
             {16, 64, 8, 8}, {3, 5, 7, 3}, {1, 8, 1, 4}, {2, 12, 1, 3}, {128, 64, 32, 32}})
      for (const bool moved : {false, true}) {
        SCOPED_TRACE(::testing::PrintToString(shape) + (moved ? " at an odd address" : ""));
        Tensor y = random(shape, type).relu();
        y[0][0][0][0] = kNaN;
        y[0][1][0][0] = -0.0;
        y[0][2][0][0] = -1;
        if (moved) {
          const Tensor memory = torch::zeros({y.numel() + 1}, y.options());
          const Tensor other = memory.narrow(0, 1, y.numel())
                                   .view({shape[0], shape[2], shape[3], shape[1]})
                                   .permute({0, 3, 1, 2});
          other.copy_(y);
          y = other;
        }
        // Even NaN does not pass a closed gate.
        const Tensor a = random(shape, type).masked_fill(y <= 0, kNaN), b = random(shape, type);
        y.requires_grad_(true);
        for (const Uses& uses : kAll) {
          y.mutable_grad().reset();
          const Forked forked = fused_fork(y);
          for (const Tensor& each : {forked.through, forked.past}) {
            EXPECT_EQ(each.data_ptr(), y.data_ptr());
            EXPECT_EQ(each.strides(), y.strides());
          }
          go_back(forked, uses, a, b);
          const Tensor sum = added(uses, a, b);
          EXPECT_TRUE(y.grad().equal(torch::where(y <= 0, torch::zeros_like(sum), sum)));
        }
      }
}

TEST_F(FusedForkTest, AGradientInAnyOrderIsTaken) {
  const Tensor y = random({4, 64, 5, 6}).relu().requires_grad_(true), a = random(y.sizes()),
               b = random({4, 64, 1, 1}).expand_as(y);
  go_back(fused_fork(y), kAll[0], a.contiguous(), b);
  EXPECT_TRUE(y.grad().equal((a + b) * (y > 0)));
}

TEST_F(FusedForkTest, ALayersGradientsKeepTheirBits) {
  for (const auto type : {torch::kBFloat16, torch::kFloat})
    for (const char* kind : {"zca", "pca"})
      for (const bool residual : {false, true}) {
        SCOPED_TRACE(std::string(kind) + (residual ? " residual" : ""));
        const auto layer = whitening(kind, 64);
        layer->to(torch::kCUDA);
        // So much that the layer's kernels could start long before the fork is done.
        const Tensor x = random({128, 64, 32, 32}, type), r = random(x.sizes(), type),
                     a = random(x.sizes(), type), b = random(x.sizes(), type);
        for (const Uses& uses : kAll) {
          const auto results = [&](bool fork) {
            layer->zero_grad();
            const Tensor input = x.detach().requires_grad_(true),
                         other = r.detach().requires_grad_(true);
            const Forked y = norm_relu(*layer, input, residual ? other : Tensor(), fork);
            EXPECT_EQ(y.past.defined(), fork);
            if (fork)
              go_back(y, uses, a, b);
            else
              y.through.backward(added(uses, a, b));
            return std::vector<Tensor>{y.through.detach(), input.grad(),
                                       residual ? other.grad() : input.grad(),
                                       layer->weight.grad().clone(), layer->bias.grad().clone()};
          };
          const auto forked = results(true), plain = results(false);
          for (std::size_t i = 0; i < plain.size(); ++i)
            EXPECT_TRUE(forked[i].equal(plain[i])) << i;
        }
      }
}

TEST_F(FusedForkTest, IsCaptured) {
  const DeviceScope scope(torch::kCUDA);
  const auto layer = whitening("zca", 64);
  layer->to(torch::kCUDA);
  const Tensor x = random({16, 64, 8, 8}), other = random(x.sizes()), a = random(x.sizes()),
               b = random(x.sizes());
  const Tensor input = x.clone().requires_grad_(true);
  Tensor dL_dinput;
  const auto step = [&] {
    input.mutable_grad().reset();
    layer->zero_grad(/*set_to_none=*/true);
    go_back(norm_relu(*layer, input, {}, /*fork=*/true), kAll[0], a, b);
    dL_dinput = input.grad();
  };
  for (int i = 0; i < 3; ++i) step();
  const auto graph = capture(step);
  {
    const torch::NoGradGuard no_grad;
    input.copy_(other);
  }
  for (int i = 0; i < 3; ++i) graph->replay();
  synchronise(torch::kCUDA);
  const Tensor replayed = dL_dinput.clone();
  step();
  EXPECT_TRUE(replayed.equal(dL_dinput));
}

TEST_F(FusedForkTest, LeavesTheRestToTheLayer) {
  const auto layer = whitening("zca", 64);
  layer->to(torch::kCUDA);
  const Tensor x = random({4, 64, 5, 6});
  EXPECT_TRUE(fuses_fork(*layer, x));
  EXPECT_TRUE(fuses_fork(*layer, x.to(torch::kFloat)));
  EXPECT_FALSE(fuses_fork(*layer, x.to(torch::kDouble)));
  EXPECT_FALSE(fuses_fork(*layer, x.to(torch::kHalf)));
  EXPECT_FALSE(fuses_fork(*layer, x.cpu()));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(fuses_fork(*layer, x));
  }
  layer->eval();
  EXPECT_FALSE(fuses_fork(*layer, x));
  layer->train();
  layer->options.process_group = {0, 2, [](Tensor&) {}};
  EXPECT_FALSE(fuses_fork(*layer, x));
}

/// The forks in the graph of this output.
std::int64_t forks_behind(const Tensor& output) {
  std::vector<Node*> open{output.grad_fn().get()};
  std::set<Node*> seen;
  std::int64_t found = 0;
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    found += node->name().find("FusedFork") != std::string::npos;
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return found;
}

ResNet small_network(const std::string& where) {
  torch::manual_seed(5);
  ModelOptions options{.name = "resnet_small", .classes = 10, .where = where, .width = 16};
  options.norm.kind = "zca";
  options.norm.group_size = 8;
  return ResNet(options);
}

TEST_F(FusedForkTest, ANetworkForksWhatItUsesTwice) {
  const Tensor images = random({32, 3, 16, 16}, torch::kFloat);
  for (const auto& [where, forks] : {std::pair("first", 1), {"all", 3}, {"layer3.0.bn2", 0}}) {
    ResNet model = small_network(where);
    model->to(torch::kCUDA);
    EXPECT_EQ(forks_behind(model->forward(images)), 0) << where;
    model->fuse_norms(true);
    EXPECT_EQ(forks_behind(model->forward(images)), forks) << where;
    model->fuse_norms(false);
    EXPECT_EQ(forks_behind(model->forward(images)), 0) << where;
  }
}

TEST_F(FusedForkTest, ANetworkOfThemComputesTheSameBits) {
  TrainOptions options;
  options.deterministic = true;
  const Precision deterministic(options, torch::kCUDA);
  const Tensor images = random({32, 3, 16, 16}, torch::kFloat);
  const auto results = [&](bool fused) {
    ResNet model = small_network("all");
    model->to(torch::kCUDA);
    model->fuse_norms(fused);
    const Tensor output = model->forward(images);
    output.square().mean().backward();
    std::vector<Tensor> all{output.detach()};
    for (const Tensor& parameter : model->parameters()) all.push_back(parameter.grad());
    return all;
  };
  const auto fused = results(true), plain = results(false);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(fused[i].equal(plain[i])) << i;
}

TEST(FusedFork, IsLeftOutOnTheCpu) {
  const auto layer = whitening("zca", 16);
  const Tensor x = torch::randn({8, 16, 4, 4}).requires_grad_(true);
  const Forked forked = norm_relu(*layer, x, {}, /*fork=*/true), plain = norm_relu(*layer, x);
  EXPECT_FALSE(forked.past.defined());
  const auto gradient = [&](const Tensor& y) {
    return torch::autograd::grad({y}, {x}, {torch::ones_like(y)})[0];
  };
  EXPECT_TRUE(gradient(forked.through).equal(gradient(plain.through)));

  ResNet model = small_network("all");
  model->fuse_norms(true);
  EXPECT_EQ(forks_behind(model->forward(torch::randn({8, 3, 16, 16}))), 0);
}

}  // namespace
}  // namespace keel::lab
