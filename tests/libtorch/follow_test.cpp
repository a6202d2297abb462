// Statistics made from the input of the map before a norm, against those recomputed at the same weights.

#include "keel/torch/nn/follow.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include "keel/torch/nn/recalibrate.h"
#include "layers_support.h"

namespace keel::test {
namespace {

const nn::FollowOptions kAll{.share = std::nullopt, .every = 1};

/// Follows over a change of the weights, and compares with recomputed statistics.
template <typename Map, typename Norm>
void expect_follows(Map map, Norm norm, const Tensor& x, double tolerance) {
  map->to(at::kDouble), norm->to(at::kDouble);
  nn::Following following(map.ptr(), norm.ptr(), kAll);
  const torch::NoGradGuard no_grad;
  norm->train();
  following.observe(x);
  norm->forward(map->forward(x));
  for (Tensor& parameter : map->parameters()) parameter.add_(random(parameter.sizes(), 77));
  norm->eval();
  const Tensor before = norm->forward(map->forward(x));
  following.refresh();
  const Tensor followed = norm->forward(map->forward(x));
  torch::nn::Sequential both(map, norm);
  nn::recalibrate(both, Tensors{x});
  const Tensor truth = norm->forward(map->forward(x));
  EXPECT_LT(relative_error(followed, truth), tolerance);
  EXPECT_GT(relative_error(before, truth), 1e-3);
}

template <typename Map>
void expect_every_norm_follows(const Map& map, const Tensor& x) {
  torch::manual_seed(1);
  const nn::WhiteningOptions options{.num_features = 8, .group_size = 4, .rank = FullRank{}};
  expect_follows(map, nn::ZcaWhitening(options), x, 1e-10);
  expect_follows(map, nn::PcaWhitening(options), x, 1e-9);
  expect_follows(map, nn::PcaDenoising({.num_features = 8, .rank = LeadingCount{5}}), x, 1e-9);
  if (x.dim() <= 3) expect_follows(map, torch::nn::BatchNorm1d(8), x, 1e-12);
  if (x.dim() == 4) expect_follows(map, torch::nn::BatchNorm2d(8), x, 1e-12);
  if (x.dim() == 5) expect_follows(map, torch::nn::BatchNorm3d(8), x, 1e-12);
}

TEST(Follow, GivesWhatRecomputingGives) {
  using namespace torch::nn;
  torch::manual_seed(2);
  const auto input = [](at::IntArrayRef shape) { return random(shape, 3) + 1; };
  expect_every_norm_follows(Linear(4, 8), input({64, 4}));
  expect_every_norm_follows(
      Conv1d(Conv1dOptions(4, 8, 3).padding(2).padding_mode(torch::kReplicate)), input({8, 4, 9}));
  expect_every_norm_follows(
      Conv2d(Conv2dOptions(4, 8, 3).stride({2, 1}).dilation({1, 2}).padding(2)),
      input({6, 4, 9, 8}));
  expect_every_norm_follows(Conv2d(Conv2dOptions(4, 8, 3).padding(torch::kSame).groups(2)),
                            input({6, 4, 9, 8}));
  expect_every_norm_follows(
      Conv2d(Conv2dOptions(4, 8, {1, 4}).padding(torch::kSame).padding_mode(torch::kCircular)),
      input({6, 4, 9, 8}));
  expect_every_norm_follows(
      Conv2d(Conv2dOptions(8, 8, 3).groups(8).padding(2).padding_mode(torch::kReflect)),
      input({6, 8, 5, 7}));
  expect_every_norm_follows(
      Conv3d(Conv3dOptions(4, 8, {1, 2, 3}).padding({0, 1, 2}).padding_mode(torch::kCircular)),
      input({3, 4, 5, 6, 7}));
}

/// test_follow.py derives the bound.
TEST(Follow, HalfPrecisionReachesOtherDirectionsAndRoundsItsOutputs) {
  torch::manual_seed(4);
  torch::nn::Conv2d map(torch::nn::Conv2dOptions(3, 48, 3).padding(1));
  nn::ZcaWhitening norm(
      nn::WhiteningOptions{.num_features = 48, .eps = 1e-5, .momentum = 1, .rank = FullRank{}});
  nn::Following following(map.ptr(), norm.ptr(), kAll);
  const Tensor x = torch::randn({16, 3, 24, 24});
  following.observe(x);
  const torch::NoGradGuard no_grad;
  map->weight.mul_(4);
  const Tensor y = torch::conv2d(x, map->weight.to(at::kBFloat16).to(at::kFloat),
                                 map->bias.to(at::kBFloat16).to(at::kFloat), 1, 1)
                       .to(at::kBFloat16);
  const Tensor truth = norm->forward(y);
  norm->eval();
  const auto off = [&](at::ScalarType type) {
    following.refresh(type);
    return relative_error(norm->forward(y), truth);
  };
  EXPECT_LT(off(at::kBFloat16), std::min(1 - std::sqrt(0.5), off(at::kFloat) / 3));
}

TEST(Follow, SamplesAndAverages) {
  torch::nn::Conv2d map(torch::nn::Conv2dOptions(64, 8, 3));
  nn::ZcaWhitening norm({.num_features = 8, .rank = FullRank{}});
  nn::Following following(map.ptr(), norm.ptr(), {.every = 3});
  for (int step = 0; step < 7; ++step)
    following.observe(random({32, 64, 16, 16}, std::uint64_t(step), at::kFloat));
  EXPECT_EQ(following.looks.item<int>(), 3);
  // White noise: the identity, up to the error of the sample: three looks of 50 positions or more.
  const Tensor off = following.input_covariance[0] - torch::eye(576);
  EXPECT_LT(off.diagonal().abs().mean().item<double>(), 0.14);
  EXPECT_LT(off.abs().mean().item<double>(), 0.09);
}

TEST(Follow, LeavesOutWhatIsNotFiniteAndChangesNothingBeforeTheFirstLook) {
  torch::nn::Linear map(4, 8);
  nn::ZcaWhitening norm({.num_features = 8});
  nn::Following following(map.ptr(), norm.ptr(), kAll);
  const Tensor x = random({64, 4}, 5, at::kFloat), identity = norm->running_matrix.clone();
  following.observe(x.new_full({64, 4}, std::numeric_limits<double>::quiet_NaN()));
  following.observe(x.narrow(0, 0, 1));
  following.refresh();
  EXPECT_TRUE(norm->running_matrix.equal(identity));
  norm->eval();
  following.observe(x);
  EXPECT_EQ(following.looks.item<int>(), 0);
  norm->train();
  following.observe(x);
  following.refresh();
  EXPECT_EQ(following.looks.item<int>(), 1);
  EXPECT_FALSE(norm->running_matrix.equal(identity));
  EXPECT_EQ(norm->num_batches_tracked.item<int>(), 0);
}

TEST(Follow, CountsTheSamplesOfAllProcesses) {
  const auto looked = [](const nn::ProcessGroup& group) {
    torch::nn::Linear map(4, 8);
    nn::ZcaWhitening norm({.num_features = 8, .process_group = group});
    nn::Following following(map.ptr(), norm.ptr(), kAll);
    following.observe(random({64, 4}, 5, at::kFloat));
    return following.input_covariance;
  };
  // Two processes with the same samples. Not unbiased: the covariance of the whole is that of each.
  const nn::ProcessGroup two(0, 2, [](Tensor& tensor) { tensor.mul_(2); });
  EXPECT_LT(relative_error(looked(two), looked({})), 1e-6);
}

TEST(Follow, NamesWhatItCannotFollow) {
  const auto refused = [](const auto& map, const auto& norm, const char* words) {
    try {
      nn::Following(map.ptr(), norm.ptr());
      ADD_FAILURE() << words;
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  const nn::ZcaWhitening norm({.num_features = 8});
  refused(torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(4, 8, 3)), norm,
          "expected exactly Conv1d, Conv2d, Conv3d or Linear, got torch::nn::ConvTranspose2dImpl");
  refused(torch::nn::Linear(4, 6), norm, "expected a map to 8 channels, got one to 6");
  refused(torch::nn::Linear(4, 8), torch::nn::Linear(8, 8), "expected a whitening layer or");
  refused(torch::nn::Linear(4, 8),
          nn::ZcaWhitening({.num_features = 8, .track_running_stats = false}),
          "expected a norm with running statistics");
  torch::nn::Linear map(4, 8);
  EXPECT_THROW(nn::Following(map.ptr(), norm.ptr(), {.every = 0}), c10::Error);
  EXPECT_THROW(nn::Following(map.ptr(), norm.ptr(), {.share = 0.0}), c10::Error);
  EXPECT_THROW(nn::Following(map.ptr(), norm.ptr()).observe(torch::ones({2, 3, 4})), c10::Error);
}

}  // namespace
}  // namespace keel::test
