// Recomputed running statistics: plain averages at frozen weights, with nothing else changed.

#include "keel/torch/nn/recalibrate.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/utils/convert_parameters.h>

#include <limits>
#include <map>
#include <stdexcept>

#include "layers_support.h"

namespace keel::test {
namespace {

constexpr std::int64_t kChannels = 6;
using Buffers = std::map<std::string, Tensor>;

/// A convolution, the layer, dropout that would show if active, and torch's norm.
torch::nn::Sequential model_with(const std::shared_ptr<nn::WhiteningImpl>& layer) {
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(kChannels, kChannels, 1)),
                              layer, torch::nn::Dropout(0.9),
                              torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(kChannels)));
  model->to(at::kDouble);
  const torch::NoGradGuard no_grad;
  std::uint64_t seed = 40;
  for (Tensor& parameter : model->parameters())
    parameter.copy_(random(parameter.sizes(), ++seed) + 0.5);
  return model;
}

Tensors batches(int count) {
  Tensors all;
  for (int k = 0; k < count; ++k)
    all.push_back((1 + k) * activations({16, kChannels, 3, 3}, 10 + 2 * k) + k);
  return all;
}

Buffers buffers_of(const torch::nn::Module& module) {
  Buffers all;
  for (const auto& item : module.named_buffers()) all[item.key()] = item.value().clone();
  return all;
}

void expect_same(const Buffers& found, const Buffers& expected) {
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name).equal(tensor)) << name;
}

std::vector<bool> modes_of(const torch::nn::Sequential& model) {
  std::vector<bool> modes{model->is_training()};
  for (const auto& module : model->children()) modes.push_back(module->is_training());
  return modes;
}

const torch::nn::BatchNorm2dImpl& norm_of(torch::nn::Sequential model) {
  return *model[3]->as<torch::nn::BatchNorm2dImpl>();
}

TEST(Recalibrate, StatisticsArePlainAveragesOverTheBatches) {
  for (const auto& made : layers({.num_features = kChannels, .group_size = 3})) {
    auto model = model_with(made.module);
    const Tensors all = batches(4);
    // The statistics of each batch alone: a share of 1, and dropout off.
    Buffers sums;
    for (const Tensor& batch : all) {
      const torch::NoGradGuard no_grad;
      model->train();
      model[2]->eval();
      made->options.momentum = 1;
      model[3]->as<torch::nn::BatchNorm2dImpl>()->options.momentum(1);
      model->forward(batch);
      for (const auto& [name, tensor] : buffers_of(*model))
        sums[name] = sums.count(name) ? sums[name] + tensor : tensor;
    }
    nn::recalibrate(model, all);
    for (const auto& [name, tensor] : buffers_of(*model))
      if (name.find("num_batches_tracked") == std::string::npos)
        EXPECT_LT(relative_error(tensor, sums[name] / 4), 1e-14) << made.name << " " << name;
      else
        EXPECT_EQ(tensor.item<std::int64_t>(), 4) << made.name;
  }
}

TEST(Recalibrate, AnEvaluationFollowsTheWeights) {
  auto model = model_with(nn::ZcaWhitening({.num_features = kChannels}).ptr());
  const Tensors one = batches(1);
  model->forward(one[0]);
  {
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : model[0]->parameters()) parameter.mul_(3);  // a very long step
  }
  nn::recalibrate(model, one);
  model->eval();
  const Tensor evaluated = model->forward(one[0]);
  model->train();
  model[2]->eval();
  // BatchNorm's running variance is unbiased.
  const double unbiased = 16.0 * 9 / (16 * 9 - 1);
  EXPECT_LT(relative_error(evaluated, model->forward(one[0])), unbiased - 1);
}

TEST(Recalibrate, NothingElseChanges) {
  const nn::ZcaWhitening layer({.num_features = kChannels, .momentum = 0.3});
  auto model = model_with(layer.ptr());
  model->forward(batches(1)[0]);
  model[0]->train(false);
  model[3]->train(false);
  const auto modes = modes_of(model);
  const Tensor rank = layer->kept(), values = layer->eigenvalues(),
               covariance = layer->covariance();
  const Tensor mean = layer->running_mean;
  const Tensor weights = torch::nn::utils::parameters_to_vector(model->parameters()).clone();
  int seen = 0;
  nn::recalibrate(*model, [&] {
    ++seen;
    EXPECT_FALSE(model[2]->is_training());  // dropout
    EXPECT_TRUE(layer->is_training() && model[3]->is_training());
    EXPECT_FALSE(model->forward(batches(2)[1]).requires_grad());
  });
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(modes_of(model), modes);
  EXPECT_EQ(layer->options.momentum, 0.3);
  EXPECT_EQ(norm_of(model).options.momentum().value(), 0.1);
  EXPECT_TRUE(layer->kept().is_same(rank));
  EXPECT_TRUE(layer->eigenvalues().is_same(values));
  EXPECT_TRUE(layer->covariance().is_same(covariance));
  EXPECT_TRUE(layer->running_mean.is_same(mean));
  EXPECT_TRUE(weights.equal(torch::nn::utils::parameters_to_vector(model->parameters())));
}

TEST(Recalibrate, AThrowingBatchLeavesEverythingAsItWas) {
  const nn::PcaDenoising layer({.num_features = kChannels});
  auto model = model_with(layer.ptr());
  model->forward(batches(1)[0]);
  model[1]->train(false);
  const auto before = buffers_of(*model);
  const auto modes = modes_of(model);
  Tensors bad = batches(2);
  bad.push_back(torch::zeros({2, kChannels + 1, 3, 3}, at::kDouble));
  EXPECT_THROW(nn::recalibrate(model, bad), c10::Error);
  expect_same(buffers_of(*model), before);
  EXPECT_EQ(modes_of(model), modes);
  EXPECT_EQ(layer->options.momentum, 0.1);
  EXPECT_EQ(norm_of(model).options.momentum().value(), 0.1);
}

/// A user-defined norm with a statistic that must not be written.
struct WriteProtected : torch::nn::Module {
  std::optional<double> momentum = 0.2;

  WriteProtected() {
    register_buffer("running_mean", torch::full({3}, 5.0));
    const c10::InferenceMode inference;
    register_buffer("running_var", torch::ones({3}));
    register_buffer("num_batches_tracked", torch::zeros({}, at::kLong));
  }
  Tensor forward(const Tensor& x) { return x; }
};

TEST(Recalibrate, ANormThatThrowsLeavesEverythingAsItWas) {
  const nn::ZcaWhitening layer({.num_features = kChannels});
  auto model = model_with(layer.ptr());
  model->forward(batches(1)[0]);
  const auto own = std::make_shared<WriteProtected>();
  model->push_back(own);
  own->train(false);
  model[2]->train(false);
  const auto before = buffers_of(*model);
  const auto modes = modes_of(model);
  nn::RecalibrateOptions options;
  const auto expect_undone = [&] {
    bool ran = false;
    EXPECT_ANY_THROW(nn::recalibrate(
        *model, [&] { ran = true; }, options));
    EXPECT_FALSE(ran);
    expect_same(buffers_of(*model), before);
    EXPECT_EQ(modes_of(model), modes);
    EXPECT_EQ(own->momentum, 0.2);
    EXPECT_EQ(layer->options.momentum, 0.1);
    EXPECT_EQ(norm_of(model).options.momentum().value(), 0.1);
  };
  options.momentum_of = [](torch::nn::Module& module) {
    auto* mine = module.as<WriteProtected>();
    return mine != nullptr ? &mine->momentum : nullptr;
  };
  expect_undone();
  options.momentum_of = [](torch::nn::Module& module) -> std::optional<double>* {
    if (module.as<WriteProtected>() != nullptr) throw std::runtime_error("not this one");
    return nullptr;
  };
  expect_undone();
}

TEST(Recalibrate, WithoutABatchStatisticsStayAndSpoiltOnesAreMadeGood) {
  const nn::ZcaWhitening layer({.num_features = kChannels});
  auto model = model_with(layer.ptr());
  model->forward(batches(1)[0]);
  auto before = buffers_of(*model);
  nn::recalibrate(model, Tensors{});
  expect_same(buffers_of(*model), before);
  {
    const torch::NoGradGuard no_grad;
    for (Tensor& buffer : model->buffers())
      if (buffer.is_floating_point()) buffer.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  nn::recalibrate(model, batches(1));
  for (const auto& [name, tensor] : buffers_of(*model))
    EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << name;
}

TEST(Recalibrate, ChoosesWhichNorms) {
  const nn::ZcaWhitening layer({.num_features = kChannels}),
      untracked({.num_features = kChannels, .track_running_stats = false});
  auto model = model_with(layer.ptr());
  model->push_back(untracked);
  model->to(at::kDouble);
  const auto before = buffers_of(*model);
  nn::recalibrate(model, batches(2), {.batch_norms = false});
  const auto after = buffers_of(*model);
  EXPECT_EQ(after.at("1.num_batches_tracked").item<std::int64_t>(), 2);
  for (const char* name : {"3.running_mean", "3.running_var", "3.num_batches_tracked"})
    EXPECT_TRUE(after.at(name).equal(before.at(name))) << name;
  EXPECT_EQ(untracked->options.momentum, 0.1);
}

TEST(Recalibrate, ALayerUsedTwiceIsOneNormAndAveragesAllItSees) {
  const nn::ZcaWhitening layer({.num_features = kChannels});
  torch::nn::Sequential model(layer.ptr(), layer.ptr());
  model->to(at::kDouble);
  const Tensors all = batches(2);
  nn::recalibrate(model, all);
  EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 4);
  // The input that it saw the second time has mean 0.
  const Tensor mean = (all[0].mean({0, 2, 3}) + all[1].mean({0, 2, 3})) / 4;
  EXPECT_LT(relative_error(layer->running_mean, mean), 1e-12);
  const auto before = buffers_of(*model);
  EXPECT_THROW(nn::recalibrate(model, Tensors{torch::zeros({2, 1}, at::kDouble)}), c10::Error);
  expect_same(buffers_of(*model), before);
}

}  // namespace
}  // namespace keel::test
