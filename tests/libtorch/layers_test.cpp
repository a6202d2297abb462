// The layers as torch norm layers: all kinds of input, running statistics, state, messages.

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "layers_support.h"

namespace keel::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Layers, ZcaOutputHasUnitCovarianceInEveryDirection) {
  for (const auto type : {at::kDouble, at::kFloat})
    for (const std::int64_t groups : {1, 3, 12}) {
      nn::ZcaWhitening layer({.num_features = 12, .groups = groups, .eps = 0});
      layer->to(type);
      const Tensor x = activations({16, 12, 5, 5}, 1, type), y = layer(x);
      EXPECT_TRUE(torch::equal(layer->kept(), torch::full({groups}, 12 / groups, at::kLong)));
      const Tensor l = std::get<0>(torch_eigh(covariance_of(x, groups)));
      const double condition = (l.select(-1, 0) / l.select(-1, -1)).max().item<double>();
      const double unit = (type == at::kDouble ? 0x1p-52 : 0x1p-23) * (1 + condition);
      // Four roundings for the decomposition and its product. Each of the two covariances is a sum of 400 products:
      // its roundings, independent and of partial sums, have a standard deviation of sqrt(400) / 6 units, and six of
      // these are allowed. Whitening multiplies all that by the condition.
      const double rounding = (4 + 2 * std::sqrt(16.0 * 5 * 5)) * unit;
      const Tensor off = covariance_of(y, groups) - torch::eye(12 / groups, at::kDouble);
      EXPECT_LT(off.abs().max().item<double>(), rounding) << groups;
      EXPECT_LT(y.mean({0, 2, 3}).abs().max().item<double>(), 32 * unit) << groups;
    }
}

TEST(Layers, EpsTakesFromEachDirectionWhatItShould) {
  const Tensor x = activations({16, 6, 5});
  nn::ZcaWhitening layer({.num_features = 6, .eps = 0.01, .rank = FullRank{}});
  layer->to(at::kDouble);
  const Tensor l = std::get<0>(torch_eigh(covariance_of(x)[0]));
  const Tensor found = std::get<0>(torch_eigh(covariance_of(layer(x))[0]));
  EXPECT_LT(relative_error(found, l / (l + 0.01)), 1e-12);
}

TEST(Layers, PcaWhiteningHasUnitCovarianceToo) {
  nn::PcaWhitening layer({.num_features = 6, .eps = 0});
  layer->to(at::kDouble);
  const Tensor y = layer(activations({16, 6, 5}));
  EXPECT_LT((covariance_of(y)[0] - torch::eye(6, at::kDouble)).abs().max().item<double>(), 1e-12);
}

TEST(Layers, PcaDenoisingLeavesTheLeadingDirections) {
  nn::PcaDenoising layer({.num_features = 8, .rank = LeadingCount{3}});
  layer->to(at::kDouble);
  const Tensor y = layer(activations({32, 8, 5}));
  const Tensor l = std::get<0>(torch_eigh(covariance_of(y)[0]));
  EXPECT_GT(l[2].item<double>(), 0.1);
  EXPECT_LT(l[3].item<double>(), 1e-13);
  EXPECT_EQ(layer->kept().item<std::int64_t>(), 3);
}

TEST(Layers, WithoutEpsDenoisingTreatsConstantChannelsAsBatchNorm) {
  nn::PcaDenoising layer({.num_features = 4, .eps = 0, .momentum = 1, .rank = FullRank{}});
  layer->to(at::kDouble);
  Tensor x = activations({32, 4, 5});
  x.select(1, 2).fill_(7.25);
  const Tensor expected = torch::batch_norm(x, {}, {}, {}, {}, true, 0, 0, false);
  EXPECT_LT((layer(x) - expected).abs().max().item<double>(), 1e-13);
  layer->eval();
  EXPECT_LT((layer(x) - expected).abs().max().item<double>(), 1e-13);
}

TEST(Layers, OneDirectionWithNearlyAllTheEnergyIsKept) {
  const Tensor direction = random({6}, 2).view({1, 6, 1});
  const Tensor x = 100 * random({64, 1, 4}, 3) * direction + 1e-3 * random({64, 6, 4}, 4);
  nn::ZcaWhitening layer({.num_features = 6});
  layer->to(at::kDouble);
  const Tensor l = std::get<0>(torch_eigh(covariance_of(layer(x))[0]));
  EXPECT_EQ(layer->kept().item<std::int64_t>(), 1);
  EXPECT_NEAR(l[0].item<double>(), 1, 1e-6);
}

TEST(Layers, ConstantActivationsGiveTheBias) {
  for (const Layer& layer : layers({.num_features = 4})) {
    scramble(layer);
    const Tensor x = torch::ones({8, 4, 3}).requires_grad_(true);
    const Tensor y = layer(x);
    EXPECT_LT((y - layer->bias.view({1, 4, 1})).abs().max().item<double>(), 1e-3) << layer.name;
    EXPECT_GE(layer->kept().item<std::int64_t>(), 1) << layer.name;
    y.square().sum().backward();
    EXPECT_TRUE(all_finite(x.grad())) << layer.name;
  }
}

/// The same values in another memory layout give the same results.
TEST(Layers, EveryMemoryFormatGivesTheSame) {
  for (const Layer& layer : layers({.num_features = 6, .groups = 2}))
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{5, 6, 7, 3},
                                                   {5, 6, 1, 1},
                                                   {9, 6},
                                                   {4, 6, 11},
                                                   {3, 6, 2, 5, 3},
                                                   {1, 6, 33}}) {
      layer->to(at::kDouble);
      const Tensor x = activations(shape), dL_doutput = random(shape, 5);
      const auto run = [&](const Tensor& input) {
        const Tensor y = input.detach().requires_grad_(true);
        const Tensor out = layer(y);
        return std::pair(out, torch::autograd::grad({out}, {y}, {dL_doutput})[0]);
      };
      const auto [output, slope] = run(x);
      EXPECT_TRUE(output.is_contiguous());
      EXPECT_EQ(output.sizes(), x.sizes());
      const Tensor last = x.movedim(1, -1).contiguous().movedim(-1, 1);
      const auto [last_output, last_slope] = run(last);
      EXPECT_TRUE(last_output.movedim(1, -1).is_contiguous()) << layer.name << shape;
      EXPECT_TRUE(last_slope.movedim(1, -1).is_contiguous()) << layer.name << shape;
      EXPECT_LT(relative_error(last_output, output), 1e-11) << layer.name << shape;
      EXPECT_LT(relative_error(last_slope, slope), 1e-9) << layer.name << shape;
      const Tensor strided = torch::stack({x, x}, -1).select(-1, 1);
      const auto [strided_output, strided_slope] = run(strided);
      EXPECT_TRUE(strided_output.is_contiguous());
      EXPECT_TRUE(torch::equal(strided_output, output)) << layer.name << shape;
      EXPECT_TRUE(torch::equal(strided_slope, slope)) << layer.name << shape;
    }
}

TEST(Layers, ChannelsLastIsLibTorchsOwn) {
  nn::ZcaWhitening layer({.num_features = 6});
  const Tensor x =
      activations({5, 6, 4, 3}, 1, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(layer(x).is_contiguous(at::MemoryFormat::ChannelsLast));
  layer->eval();
  EXPECT_TRUE(layer(x).is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(Layers, HalfPrecisionHasFloatStatistics) {
  for (const auto type : {at::kHalf, at::kBFloat16})
    for (const bool half_parameters : {false, true})
      for (const Layer& layer : layers({.num_features = 8, .groups = 2, .rank = FullRank{}})) {
        const double unit = type == at::kHalf ? 0x1p-11 : 0x1p-8;
        scramble(layer);
        const Tensor x = activations({16, 8, 4, 4}, 1, type),
                     dL_doutput = random(x.sizes(), 5, type);
        const auto run = [&](const Tensor& input, const Tensor& grad) {
          const Tensor y = input.detach().requires_grad_(true);
          const Tensor out = layer(y);
          return std::pair(out, torch::autograd::grad({out}, {y, layer->weight}, {grad}));
        };
        if (half_parameters) layer->to(type);
        const auto [output, slopes] = run(x, dL_doutput);
        layer->to(at::kFloat);
        const auto [single, single_slopes] = run(x.to(at::kFloat), dL_doutput.to(at::kFloat));
        EXPECT_EQ(output.scalar_type(), type);
        EXPECT_EQ(slopes[0].scalar_type(), type);
        EXPECT_EQ(slopes[1].scalar_type(), half_parameters ? type : at::kFloat);
        // Each entry is rounded once, by at most `unit` relative, and by about half of that in the mean square.
        EXPECT_LT(relative_error(output, single), unit) << layer.name;
        EXPECT_LT(relative_error(slopes[0], single_slopes[0]), unit) << layer.name;
        EXPECT_LT(relative_error(slopes[1], single_slopes[1]), unit) << layer.name;
      }
}

TEST(Layers, HalfParametersKeepTheLayerUsable) {
  nn::PcaDenoising layer({.num_features = 8});
  layer(activations({16, 8}, 1, at::kFloat));
  layer->to(at::kHalf);
  EXPECT_EQ(layer->num_batches_tracked.scalar_type(), at::kLong);
  EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 1);
  EXPECT_TRUE(all_finite(layer(activations({16, 8}, 1, at::kHalf))));
  EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 2);
  layer->eval();
  const Tensor y = layer(activations({16, 8}, 1, at::kHalf));
  EXPECT_EQ(y.scalar_type(), at::kHalf);
  EXPECT_TRUE(all_finite(y));
}

TEST(Layers, MeansFarFromZeroCostNoAccuracy) {
  const Tensor centred = random({16, 8, 6, 6}, 1);
  const Tensor x = (centred * 0.5 + 1e4 * 0.5).to(at::kFloat);
  nn::ZcaWhitening single({.num_features = 8}), exact({.num_features = 8});
  exact->to(at::kDouble);
  // Both get the same rounded input. The mean is a float32 number too: every sample may be off by half its last
  // place, and by nothing else.
  const Tensor off = (single(x) - exact(x.to(at::kDouble))).transpose(0, 1).flatten(1);
  const double half_place = 0x1p-12, largest_factor = 1 / 0.45;
  EXPECT_LT(off.abs().max().item<double>(), half_place * largest_factor * std::sqrt(8));
  EXPECT_LT((off - off.mean(1, /*keepdim=*/true)).abs().max().item<double>(), 2e-5);
}

TEST(Layers, RunningStatisticsAreMovingAverages) {
  const std::int64_t groups = 2;
  for (const Layer& layer : layers({.num_features = 6, .groups = groups, .momentum = 0.3})) {
    layer->to(at::kDouble);
    EXPECT_TRUE(
        torch::equal(layer->running_matrix, torch::eye(3, at::kDouble).expand({groups, 3, 3})));
    Tensor mean = torch::zeros({6}, at::kDouble), variance = torch::ones({6}, at::kDouble);
    Tensor matrix = layer->running_matrix.clone();
    for (const std::uint64_t seed : {1, 2, 3}) {
      const Tensor x = activations({8, 6, 5}, seed);
      layer(x);
      const Tensor v = covariance_of(x, groups).diagonal(0, -2, -1).reshape({-1});
      Tensor s = layer_matrix(covariance_of(x, groups), layer.map).matrix;
      if (layer.name == "denoising") s = s * (v + 1e-4).sqrt().view({groups, 1, -1});
      mean = 0.7 * mean + 0.3 * x.mean(-1).mean(0);
      variance = 0.7 * variance + 0.3 * v;
      matrix = 0.7 * matrix + 0.3 * s;
    }
    EXPECT_LT(relative_error(layer->running_mean, mean), 1e-13) << layer.name;
    EXPECT_LT(relative_error(layer->running_matrix, matrix), 1e-12) << layer.name;
    EXPECT_EQ(layer->running_variance.defined(), layer.name == "denoising");
    if (layer.name == "denoising") {
      EXPECT_LT(relative_error(layer->running_variance, variance), 1e-13);
    }
    EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 3);
    layer->eval();
    const Tensor before = layer->running_mean.clone();
    layer(activations({8, 6, 5}, 9));
    EXPECT_TRUE(torch::equal(layer->running_mean, before));
    layer->reset_running_stats();
    EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 0);
    EXPECT_EQ(layer->running_mean.abs().sum().item<double>(), 0);
    EXPECT_EQ(layer->running_matrix.sum().item<double>(), 6);
  }
}

TEST(Layers, WithoutMomentumTheAverageIsPlain) {
  nn::ZcaWhitening layer({.num_features = 4, .momentum = std::nullopt});
  layer->to(at::kDouble);
  Tensor mean = torch::zeros({4}, at::kDouble), matrix = torch::zeros({1, 4, 4}, at::kDouble);
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Tensor x = activations({8, 4, 5}, seed);
    layer(x);
    mean += x.mean(-1).mean(0) / 3;
    matrix += layer_matrix(covariance_of(x), Zca{}).matrix / 3;
  }
  EXPECT_LT(relative_error(layer->running_mean, mean), 1e-13);
  EXPECT_LT(relative_error(layer->running_matrix, matrix), 1e-12);
}

TEST(Layers, WithoutRunningStatisticsBatchesServeEvaluation) {
  nn::ZcaWhitening layer({.num_features = 4, .track_running_stats = false});
  const Tensor x = activations({8, 4, 5}, 1, at::kFloat);
  const Tensor training = layer(x);
  layer->eval();
  EXPECT_TRUE(torch::equal(layer(x), training));
  EXPECT_TRUE(layer->buffers().empty());
}

TEST(Layers, ABadBatchGivesNaNAndLeavesNoTrace) {
  for (const auto& momentum : {std::optional<double>(0.1), std::optional<double>()})
    for (const double bad : {kNaN, std::numeric_limits<double>::infinity()})
      for (const Layer& layer : layers({.num_features = 6, .groups = 2, .momentum = momentum})) {
        Tensor x = activations({8, 6, 5}, 1, at::kFloat);
        const Tensor spoilt = x.clone();
        spoilt[3][1][2] = bad;
        const auto expect_no_trace = [&] {
          std::vector<Tensor> before;
          for (const Tensor& buffer : layer->buffers()) before.push_back(buffer.clone());
          const Tensor y = layer(spoilt);
          EXPECT_TRUE(all_nan(y.narrow(1, 0, 3))) << layer.name;
          EXPECT_TRUE(all_finite(y.narrow(1, 3, 3))) << layer.name;  // the other group
          for (std::size_t i = 0; i < before.size(); ++i)
            EXPECT_TRUE(torch::equal(layer->buffers()[i], before[i])) << layer.name << i;
        };
        expect_no_trace();  // even as the first batch
        layer(x);
        EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 1);
        expect_no_trace();
        layer(x);
        EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 2);
        for (const Tensor& buffer : layer->buffers()) EXPECT_TRUE(all_finite(buffer));
      }
}

TEST(Layers, FewerSamplesThanChannelsWorkAndWarnOnce) {
  for (const Layer& layer : layers({.num_features = 16, .group_size = 8})) {
    ::testing::internal::CaptureStderr();
    const Tensor x = activations({5, 16}, 1, at::kFloat).requires_grad_(true);
    const Tensor y = layer(x);
    layer(x);
    const std::string warning = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(warning.find("5 samples of 16 channels in groups of 8: the covariance has rank 4 at "
                           "most"),
              std::string::npos)
        << warning;
    EXPECT_EQ(warning.find("samples"), warning.rfind("samples")) << warning;
    EXPECT_TRUE(all_finite(y)) << layer.name;
    y.square().sum().backward();
    EXPECT_TRUE(all_finite(x.grad())) << layer.name;
  }
  ::testing::internal::CaptureStderr();
  nn::ZcaWhitening enough({.num_features = 16, .group_size = 8});
  enough(activations({9, 16}, 1, at::kFloat));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Layers, StateGoesThroughAStreamAndBack) {
  nn::PcaDenoising layer({.num_features = 6, .groups = 2});
  layer(activations({8, 6, 5}, 1, at::kFloat));
  layer->weight.detach().fill_(2);
  std::stringstream stream;
  torch::save(layer, stream);
  nn::PcaDenoising other({.num_features = 6, .groups = 2});
  torch::load(other, stream);
  const auto names = [](const auto& items) {
    std::vector<std::string> all;
    for (const auto& item : items) all.push_back(item.key());
    return all;
  };
  EXPECT_EQ(names(layer->named_parameters()), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(names(layer->named_buffers()),
            (std::vector<std::string>{"running_mean", "running_matrix", "running_variance",
                                      "num_batches_tracked"}));
  EXPECT_EQ(names(nn::ZcaWhitening({.num_features = 2})->named_buffers()),
            (std::vector<std::string>{"running_mean", "running_matrix", "num_batches_tracked"}));
  for (const auto& item : layer->named_buffers())
    EXPECT_TRUE(torch::equal(item.value(), other->named_buffers()[item.key()])) << item.key();
  layer->eval();
  other->eval();
  const Tensor x = activations({3, 6, 5}, 4, at::kFloat);
  EXPECT_TRUE(torch::equal(layer(x), other(x)));
}

TEST(Layers, ClonesAreAlikeAndApart) {
  for (const Layer& layer : layers({.num_features = 6, .groups = 2, .eps = 1e-3})) {
    layer->to(at::kDouble);
    scramble(layer);
    layer(activations({8, 6, 5}, 1));
    layer->eval();
    layer->weight.set_requires_grad(false);
    const auto copy = std::dynamic_pointer_cast<nn::WhiteningImpl>(layer->clone());
    ASSERT_TRUE(copy);
    EXPECT_EQ(typeid(*copy), typeid(*layer.module));
    EXPECT_FALSE(copy->is_training());
    EXPECT_FALSE(copy->weight.requires_grad());
    EXPECT_TRUE(copy->bias.requires_grad());
    const Tensor x = activations({8, 6, 5}, 2);
    EXPECT_TRUE(torch::equal(copy->forward(x), layer(x))) << layer.name;
    const Tensor before = layer(x);
    {
      const torch::NoGradGuard no_grad;
      copy->weight.fill_(7);
      copy->running_mean.fill_(7);
    }
    EXPECT_TRUE(torch::equal(layer(x), before)) << layer.name;
  }
}

TEST(Layers, ParametersStartAndResetAsThoseOfNorms) {
  nn::ZcaWhitening layer({.num_features = 6});
  EXPECT_TRUE(torch::equal(layer->weight, torch::ones(6)));
  EXPECT_TRUE(torch::equal(layer->bias, torch::zeros(6)));
  layer(activations({8, 6}, 1, at::kFloat)).sum().backward();
  {
    const torch::NoGradGuard no_grad;
    layer->weight.fill_(3);
  }
  layer->reset_parameters();
  EXPECT_TRUE(torch::equal(layer->weight, torch::ones(6)));
  EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 0);
  EXPECT_TRUE(layer->weight.requires_grad());
}

TEST(Layers, StandInSequentialsAndLearn) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                            nn::ZcaWhitening({.num_features = 8, .group_size = 4}),
                            torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(8 * 16, 2));
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  const Tensor x = random({32, 3, 4, 4}, 1, at::kFloat);
  const Tensor target = (x.sum({1, 2, 3}) > 0).to(at::kLong);
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const Tensor loss = torch::nn::functional::cross_entropy(net->forward(x), target);
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, first / 4);
}

TEST(Layers, PrintTheirOptions) {
  std::ostringstream text;
  text << nn::ZcaWhitening({.num_features = 64, .group_size = 16}) << '\n'
       << nn::PcaDenoising({.num_features = 8,
                            .momentum = std::nullopt,
                            .affine = false,
                            .rule = PowerIteration{},
                            .rank = LeadingCount{3}});
  EXPECT_EQ(
      text.str(),
      "keel::nn::ZcaWhitening(64, groups=4, group_size=16, eps=0.0001, momentum=0.1, affine=true, "
      "track_running_stats=true, rule=exact(terms=19), rank=leading_reliable(eps=1e-04, "
      "rayleigh_tolerance=0.1, energy=0.9999, keep_reaching=true, literal=false))\n"
      "keel::nn::PcaDenoising(8, groups=1, group_size=8, eps=0.0001, momentum=none, affine=false, "
      "track_running_stats=true, rule=power_iteration(terms=19), "
      "rank=leading_count(count=3))");
}

TEST(Layers, RankPolicyFollowsEpsByDefault) {
  nn::ZcaWhitening layer({.num_features = 4, .eps = 1e-2});
  EXPECT_EQ(std::get<Algorithm1>(*layer->options.rank).eps, 1e-2);
}

TEST(Layers, ErrorsNameTheLayerWhatWasExpectedAndWhatCame) {
  const auto fails = [](const std::string& part, const nn::WhiteningOptions& options) {
    return fails_with("keel::nn::ZcaWhitening: " + part,
                      [&] { const nn::ZcaWhitening layer(options); });
  };
  EXPECT_TRUE(fails("expected num_features > 0, got 0", {}));
  EXPECT_TRUE(fails("expected group_size to divide the channels, got group_size 4 and 6 channels",
                    {.num_features = 6, .group_size = 4}));
  EXPECT_TRUE(fails("expected groups to divide the channels, got groups 4 and 6 channels",
                    {.num_features = 6, .groups = 4}));
  EXPECT_TRUE(fails(
      "expected groups * group_size = num_features, got groups 2, group_size 2 and 6 channels",
      {.num_features = 6, .group_size = 2, .groups = 2}));
  EXPECT_NO_THROW(nn::ZcaWhitening({.num_features = 6, .group_size = 2, .groups = 3}));
  EXPECT_TRUE(
      fails("expected a momentum in [0, 1] or none, got 2", {.num_features = 6, .momentum = 2}));
  EXPECT_TRUE(fails("keel::zca: expected eps to be a finite number >= 0, got -1",
                    {.num_features = 6, .eps = -1}));
  EXPECT_TRUE(fails("keel::power_iteration: expected terms to be a whole number",
                    {.num_features = 6, .rule = PowerIteration{0}}));
  EXPECT_TRUE(fails("keel::leading_count: expected count to be",
                    {.num_features = 6, .rank = LeadingCount{0}}));

  nn::ZcaWhitening layer({.num_features = 6});
  EXPECT_TRUE(fails_with("keel::nn::ZcaWhitening: expected (N, 6, *), got (2, 5)", [&] {
    layer(torch::zeros({2, 5}));
  }));
  EXPECT_TRUE(fails_with("keel::nn::ZcaWhitening: expected (N, 6, *), got (6)",
                         [&] { layer(torch::zeros({6})); }));
  EXPECT_TRUE(fails_with(
      "expected more than 1 value per channel when training, got input size (1, 6)", [&] {
        layer(torch::zeros({1, 6}));
      }));
  EXPECT_TRUE(fails_with("got input size (0, 6, 3)", [&] { layer(torch::zeros({0, 6, 3})); }));
  layer->eval();
  EXPECT_EQ(layer(torch::zeros({1, 6})).sizes(), (std::vector<std::int64_t>{1, 6}));
  EXPECT_EQ(layer(torch::zeros({0, 6, 3})).numel(), 0);
}

/// The layers compute in float32 under autocast.
TEST(Layers, AutocastLeavesTheStatisticsAlone) {
  const Tensor x = activations({8, 6, 4, 4}, 3, at::kFloat);
  const SpectralRule rules[] = {Exact{}, PowerIteration{}};
  for (const SpectralRule& rule : rules) {
    const Tensor plain = nn::ZcaWhitening({.num_features = 6, .rule = rule})(x);
    c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::AutocastCPU, false);
    const bool halves = torch::ones({2, 2}).matmul(torch::ones({2, 2})).scalar_type() != at::kFloat;
    const Tensor mixed = nn::ZcaWhitening({.num_features = 6, .rule = rule})(x);
    c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::AutocastCPU, true);
    EXPECT_TRUE(halves) << "autocast was not on";
    EXPECT_TRUE(torch::equal(plain, mixed)) << to_string(rule);
  }
}

}  // namespace
}  // namespace keel::test
