#include "lab/models/resnet.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <map>
#include <set>

#include "lab/models/batch_norm.h"
#include "support/errors.h"

namespace keel::lab {
namespace {

using keel::testing::refuses;
using torch::Tensor;
using State = std::map<std::string, Tensor>;

ModelOptions small(const std::string& kind, const std::string& rule = "exact") {
  return {.name = "resnet_small", .norm = {.kind = kind, .rule = rule}};
}

State state_of(const ResNet& net) {
  State state;
  for (const auto& item : net->named_parameters()) state[item.key()] = item.value();
  for (const auto& item : net->named_buffers()) state[item.key()] = item.value();
  return state;
}

std::int64_t parameters(const ModelOptions& options) {
  std::int64_t count = 0;
  for (const Tensor& parameter : ResNet(options)->parameters()) count += parameter.numel();
  return count;
}

double relative_error(const Tensor& a, const Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

/// The same network written with plain functions of the parameters by name. BatchNorm everywhere except at the named
/// norms.
struct ByName {
  const State& state;
  NormOptions tested = {};
  std::set<std::string> where = {};

  bool has(const std::string& name) const { return state.count(name) > 0; }
  Tensor convolved(const std::string& name, const Tensor& x, std::int64_t stride) const {
    const Tensor& weight = state.at(name + ".weight");
    return torch::conv2d(x, weight, {}, stride, (weight.size(2) - 1) / 2);
  }
  Tensor normed(const std::string& name, const Tensor& x) const {
    if (where.count(name) > 0) {  // fresh: its weights are the network's at the start
      const auto layer = make_norm(tested, x.size(1));
      layer->to(x.scalar_type());
      return apply_norm(*layer, x);
    }
    return torch::batch_norm(x, state.at(name + ".weight"), state.at(name + ".bias"), {}, {},
                             /*training=*/true, 0.1, 1e-5, false);
  }
  Tensor block(const std::string& name, const Tensor& x, std::int64_t stride) const {
    Tensor y = x, straight = x;
    const bool bottleneck = has(name + ".conv3.weight");
    const int last = bottleneck ? 3 : 2, strided = bottleneck ? 2 : 1;
    for (int i = 1; i <= last; ++i) {
      const std::string number = std::to_string(i);
      y = convolved(name + ".conv" + number, y, i == strided ? stride : 1);
      y = normed(name + ".bn" + number, y);
      if (i < last) y = torch::relu(y);
    }
    if (has(name + ".downsample.0.weight"))
      straight = normed(name + ".downsample.1", convolved(name + ".downsample.0", x, stride));
    return torch::relu(y + straight);
  }
  Tensor forward(const Tensor& input) const {
    Tensor x = torch::relu(normed("bn1", convolved("conv1", input, 1)));
    for (int stage = 1; has("layer" + std::to_string(stage) + ".0.conv1.weight"); ++stage)
      for (int i = 0;; ++i) {
        const std::string name = "layer" + std::to_string(stage) + "." + std::to_string(i);
        if (!has(name + ".conv1.weight")) break;
        x = block(name, x, stage > 1 && i == 0 ? 2 : 1);
      }
    x = torch::avg_pool2d(x, {x.size(2), x.size(3)}).flatten(1);
    return torch::linear(x, state.at("fc.weight"), state.at("fc.bias"));
  }
};

TEST(ResNet, HasTheParametersOfTorchvisionsWithASmallerFirstConvolution) {
  // torchvision: 11,689,512 and 25,557,032 with a 7x7 first convolution and 1000 classes.
  const std::int64_t first = 3 * 64 * 3 * 3 - 3 * 64 * 7 * 7;
  for (const std::int64_t classes : {10, 100}) {
    EXPECT_EQ(parameters({.name = "resnet18", .classes = classes}),
              11'689'512 + first + 513 * (classes - 1000));
    EXPECT_EQ(parameters({.name = "resnet50", .classes = classes}),
              25'557'032 + first + 2049 * (classes - 1000));
  }
  EXPECT_EQ(parameters({.name = "resnet18"}), 11'173'962);
  // conv1, bn1; two 3x3 and two norms a block; the shortcuts of the second and third; fc.
  const std::int64_t w = 8;
  std::int64_t expected = 27 * w + 2 * w;
  for (std::int64_t in = w, out = w; out <= 4 * w; in = out, out *= 2)
    expected += 9 * in * out + 9 * out * out + 4 * out + (in == out ? 0 : in * out + 2 * out);
  EXPECT_EQ(parameters(small("batch")), expected + 4 * w * 10 + 10);
}

TEST(ResNet, NamesItsTensorsAsTorchvisionDoes) {
  std::set<std::string> expected{"conv1.weight", "fc.weight", "fc.bias"};
  const auto add_norm = [&](const std::string& name) {
    for (const char* part :
         {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"})
      expected.insert(name + "." + part);
  };
  add_norm("bn1");
  for (int stage = 1; stage <= 4; ++stage)
    for (int block = 0; block < 2; ++block) {
      const std::string name = "layer" + std::to_string(stage) + "." + std::to_string(block);
      expected.insert({name + ".conv1.weight", name + ".conv2.weight"});
      add_norm(name + ".bn1");
      add_norm(name + ".bn2");
      if (stage > 1 && block == 0) {
        expected.insert(name + ".downsample.0.weight");
        add_norm(name + ".downsample.1");
      }
    }
  std::set<std::string> names;
  for (const auto& [name, tensor] : state_of(ResNet(ModelOptions{}))) names.insert(name);
  EXPECT_EQ(names, expected);
}

TEST(ResNet, TakesImagesOfAnySize) {
  ResNet net(small("zca"));
  EXPECT_EQ(net->forward(torch::randn({4, 3, 24, 40})).sizes(), (std::vector<std::int64_t>{4, 10}));
  EXPECT_THROW(net->forward(torch::randn({4, 1, 32, 32})), c10::Error);
}

TEST(ResNet, StartsWithKaimingConvolutions) {
  torch::manual_seed(3);
  for (const auto& [name, tensor] : state_of(ResNet(ModelOptions{}))) {
    if (tensor.dim() != 4) continue;
    const double fan_out = double(tensor.size(0) * tensor.size(2) * tensor.size(3));
    const double deviation = std::sqrt(2 / fan_out), count = double(tensor.numel());
    EXPECT_NEAR(tensor.std().item<double>(), deviation, 5 * deviation / std::sqrt(2 * count))
        << name;
    EXPECT_NEAR(tensor.mean().item<double>(), 0, 5 * deviation / std::sqrt(count)) << name;
  }
}

/// The largest entry of conv1's gradient after one backward; NaN if any entry is.
double first_gradient(ResNet& net, std::uint64_t seed) {
  torch::manual_seed(seed);
  const Tensor input = torch::randn({32, 3, 16, 16});
  const Tensor labels = torch::randint(10, {32}, torch::kLong);
  net->zero_grad();
  torch::nn::functional::cross_entropy(net->forward(input), labels).backward();
  return net->first_convolution()->weight.grad().abs().max().item<double>();
}

TEST(ResNet, DeadChannelsStayDead) {
  for (const char* kind : {"batch", "zca", "pca"}) {
    torch::manual_seed(4);
    ModelOptions options = small(kind);
    options.dead_channels = 3;
    ResNet net(options);
    torch::optim::SGD optimiser(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    for (std::uint64_t step = 0; step < 5; ++step) {
      EXPECT_TRUE(std::isfinite(first_gradient(net, step))) << kind;
      optimiser.step();
    }
    const Tensor weight = net->first_convolution()->weight.flatten(1).abs().amax(1);
    EXPECT_EQ((weight == 0).sum().item<std::int64_t>(), 3) << kind;
    EXPECT_TRUE(torch::equal(weight.narrow(0, 5, 3), torch::zeros(3))) << kind;
  }
}

TEST(ResNet, RepeatedEigenvaluesThatAreKeptBreakTheTextbookRuleAndNoOther) {
  for (const std::string& rule : term::names<SpectralRule>()) {
    for (const std::string rank : {"algorithm1", "full"})
      for (const std::int64_t dead : {0, 3}) {
        torch::manual_seed(5);
        ModelOptions options = small("zca", rule);
        options.norm.rank = rank;
        options.dead_channels = dead;
        ResNet net(options);
        const bool finite = std::isfinite(first_gradient(net, 6));
        EXPECT_EQ(finite, !(rule == "analytic" && rank == "full" && dead > 0))
            << rule << ", " << rank << ", " << dead << " dead";
      }
  }
}

TEST(ResNet, TheLayerUnderTestIsWhereItIsAsked) {
  const auto whitened = [](const std::string& where) {
    ModelOptions options = small("zca");
    options.where = where;
    options.norm.group_size = 4;
    ResNet net(options);
    std::vector<std::string> names, told;
    for (const auto& item : net->named_modules())
      if (item.value()->as<keel::nn::WhiteningImpl>() != nullptr) names.push_back(item.key());
    for (const Normed* part : net->tested()) told.push_back(part->norm_name());
    EXPECT_EQ(names, told);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(whitened("first"), Names{"bn1"});
  EXPECT_EQ(whitened("layer2.0.downsample.1"), Names{"layer2.0.downsample.1"});
  // In the order of the data, whatever the order of the names.
  EXPECT_EQ(whitened("layer3.0.bn2, layer1.0.bn1,bn1"),
            (Names{"bn1", "layer1.0.bn1", "layer3.0.bn2"}));
  EXPECT_EQ(whitened("all").size(), 9u);
  EXPECT_EQ(whitened("bn1, layer*.bn2"),
            (Names{"bn1", "layer1.0.bn2", "layer2.0.bn2", "layer3.0.bn2"}));
  EXPECT_EQ(whitened("layer?.0.downsample.1"),
            (Names{"layer2.0.downsample.1", "layer3.0.downsample.1"}));
}

// Gradients pass through several layers, and through operations that overwrite their outputs.
TEST(ResNet, ComputesWhatItsNamesSay) {
  struct Case {
    const char *name, *kind, *where;
  };
  std::vector<Case> cases{{"resnet_small", "batch", "first"},
                          {"resnet18", "batch", "first"},
                          {"resnet50", "batch", "first"},
                          {"resnet_small", "batch", "all"},
                          {"resnet50", "zca", "all"}};
  for (const char* kind : {"zca", "pca", "none"})
    for (const char* where : {"all", "layer1.0.bn2,layer2.0.downsample.1,layer3.0.bn1"})
      cases.push_back({"resnet_small", kind, where});
  for (const auto& [name, kind, where] : cases) {
    torch::manual_seed(8);
    ResNet net(ModelOptions{
        .name = name, .classes = 7, .norm = {.kind = kind, .group_size = 4}, .where = where});
    net->to(torch::kDouble);
    const State state = state_of(net);
    ByName plain{state, net->options().norm, {}};
    for (const Normed* part : net->tested()) plain.where.insert(part->norm_name());
    const Tensor input = torch::randn({6, 3, 16, 16}, torch::kDouble);
    const Tensor output = net->forward(input), expected = plain.forward(input);
    ASSERT_EQ(output.sizes(), (std::vector<std::int64_t>{6, 7}));
    EXPECT_LT(relative_error(output, expected), 1e-9) << name << kind << where;
    const Tensor& first = state.at("conv1.weight");
    const Tensor slope = torch::autograd::grad({output.pow(2).sum()}, {first})[0];
    const Tensor by_name = torch::autograd::grad({expected.pow(2).sum()}, {first})[0];
    EXPECT_LT(relative_error(slope, by_name), 1e-7) << name << kind << where;
  }
}

TEST(ResNet, AWatchedPassIsThePlainOneAndSeesEveryLayer) {
  for (const char* name : {"resnet_small", "resnet18", "resnet50"})
    for (const char* where : {"first", "all"}) {
      ResNet net(
          ModelOptions{.name = name, .norm = {.kind = "zca", .group_size = 4}, .where = where});
      net->eval();
      const torch::NoGradGuard no_grad;
      const Tensor x = torch::randn({2, 3, 16, 16});
      std::map<std::string, Tensor> inputs, outputs;
      std::vector<std::string> names;
      const Watch watch = [&](const std::string& layer, const Tensor& input, const Tensor& output) {
        names.push_back(layer);
        inputs[layer] = input;
        outputs[layer] = output.clone();
        EXPECT_TRUE(output.equal(outputs[layer]));
      };
      EXPECT_TRUE(net->forward(x, &watch).equal(net->forward(x)));
      EXPECT_EQ(names[0], "conv1");
      EXPECT_EQ(names[1], "bn1");
      EXPECT_EQ(names[2], "layer1.0.conv1");
      EXPECT_EQ(names.back(), "fc");
      EXPECT_TRUE(inputs["conv1"].equal(x));
      EXPECT_TRUE(inputs["bn1"].equal(outputs["conv1"]));
      EXPECT_TRUE(inputs["layer1.0.conv1"].equal(outputs["bn1"].relu()));
      EXPECT_TRUE(inputs["layer2.0.downsample.1"].equal(outputs["layer2.0.downsample.0"]));
      EXPECT_FALSE(inputs["layer1.0"].defined());
      const auto sites = norm_sites(net->options());
      for (const NormSite& site : sites)
        EXPECT_EQ(outputs[site.name].size(1), site.channels) << site.name;
      const auto is_norm = [](const std::string& layer) {
        return layer.find("bn") != layer.npos || layer.ends_with("downsample.1");
      };
      EXPECT_EQ(std::size_t(std::ranges::count_if(names, is_norm)), sites.size());
    }
}

TEST(ResNet, RefusesOptionsByName) {
  const auto check = [](ModelOptions options, const std::string& part) {
    EXPECT_TRUE(refuses({part}, [&] { ResNet{options}; }));
  };
  check({.dead_channels = 64}, "dead_channels from 0 to 63 of the 64 channels, got 64");
  check({.norm = {.kind = "zca", .group_size = 24}},
        "group_size to divide the layer's 64 channels");
  const auto at = [](const std::string& where, std::int64_t group) {
    return ModelOptions{
        .name = "resnet_small", .norm = {.kind = "zca", .group_size = group}, .where = where};
  };
  check(at("all", 16), "group_size to divide the 8 channels of bn1, got 16");
  check(at("layer3.0.bn1,layer2.0.bn2", 32),
        "group_size to divide the 16 channels of layer2.0.bn2, got 32");
  check(at("layer2.0.bn1", 3), "group_size to divide the 16 channels of layer2.0.bn1, got 3");
  for (const char* where :
       {"last", "", "bn1,", ",", "all,bn1", "bn1;bn2", "layer4.0.bn1", "conv1", "layer9*"})
    check(at(where, 4),
          "(bn1, layer1.0.bn1, layer1.0.bn2, layer2.0.bn1, layer2.0.bn2, layer2.0.downsample.1, "
          "layer3.0.bn1, layer3.0.bn2, layer3.0.downsample.1), got '");
  for (const char* where : {"bn1,layer1.0.bn1,bn1", "bn1,bn*"})
    check(at(where, 4), "each norm once in where, got bn1 twice");
}

}  // namespace
}  // namespace keel::lab
