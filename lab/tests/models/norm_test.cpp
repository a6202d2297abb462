#include "lab/models/norm.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/linear.h>

#include "lab/models/batch_norm.h"
#include "support/errors.h"

namespace keel::lab {
namespace {

using keel::testing::refuses;

const keel::nn::WhiteningOptions& made(const NormOptions& options, std::int64_t channels) {
  static std::shared_ptr<torch::nn::Module> layer;
  layer = make_norm(options, channels);
  return layer->as<keel::nn::WhiteningImpl>()->options;
}

TEST(Norm, ChoosesTheLayerByName) {
  EXPECT_TRUE(make_norm({.kind = "zca"}, 8)->as<keel::nn::ZcaWhiteningImpl>());
  EXPECT_TRUE(make_norm({.kind = "pca"}, 8)->as<keel::nn::PcaDenoisingImpl>());
  EXPECT_TRUE(make_norm({.kind = "batch"}, 8)->as<BatchNormImpl>());
  EXPECT_TRUE(make_norm({.kind = "none"}, 8)->as<torch::nn::IdentityImpl>());
}

TEST(Norm, HandsItsOptionsOn) {
  const auto zca = made({.kind = "zca",
                         .group_size = 4,
                         .rule = "taylor",
                         .parameter = 7,
                         .eps = 1e-3,
                         .momentum = 0.25},
                        8);
  EXPECT_EQ(*zca.groups, 2);
  EXPECT_EQ(std::get<Taylor>(zca.rule).terms, 7);
  EXPECT_EQ(zca.eps, 1e-3);
  EXPECT_EQ(*zca.momentum, 0.25);
  EXPECT_EQ(*std::get<Algorithm1>(*zca.rank).eps, 1e-3);
  EXPECT_TRUE(std::get<Algorithm1>(*zca.rank)
                  .literal);  // the recorded experiments are the paper's, to the letter
  EXPECT_FALSE(
      std::get<Algorithm1>(*made({.kind = "zca", .rank = "algorithm1_margin"}, 8).rank).literal);
  EXPECT_EQ(*made({.kind = "zca"}, 8).group_size, 8);
  EXPECT_TRUE(std::holds_alternative<FullRank>(*made({.kind = "zca", .rank = "full"}, 8).rank));
  EXPECT_EQ(std::get<LeadingEnergy>(*made({.kind = "pca", .energy = 0.8}, 8).rank).fraction, 0.8);
  EXPECT_EQ(std::get<LeadingCount>(*made({.kind = "pca", .components = 3}, 8).rank).count, 3);
  const auto batch = make_norm({.kind = "batch", .momentum = 0.3}, 8);
  EXPECT_EQ(batch->as<BatchNormImpl>()->momentum, 0.3);
}

TEST(Norm, EveryChoiceRunsForwardAndBackward) {
  torch::manual_seed(1);
  const auto input = torch::randn({8, 8, 6, 6}, torch::requires_grad());
  for (const std::string& kind : norm_kinds())
    for (const std::string& rule : norm_rules()) {
      const bool for_zca = rule.starts_with("released_") || rule == "newton_schulz";
      if (kind == "pca" && for_zca) {
        EXPECT_TRUE(refuses({"kind zca with rule " + rule},
                            [&] { validate({.kind = kind, .rule = rule}, 8); }));
        continue;
      }
      const auto norm = make_norm({.kind = kind, .group_size = 4, .rule = rule}, 8);
      const auto output = apply_norm(*norm, input);
      EXPECT_EQ(output.sizes(), input.sizes());
      const auto slope = torch::autograd::grad({(output * output * output).sum()}, {input})[0];
      EXPECT_TRUE(slope.isfinite().all().item<bool>()) << kind << " " << rule;
    }
}

TEST(Norm, SaysWhatCannotBeCaptured) {
  for (const std::string& rule : norm_rules())
    EXPECT_EQ(can_be_captured({.kind = "zca", .rule = rule}), rule != "released_textbook") << rule;
  EXPECT_TRUE(can_be_captured({.kind = "batch", .rule = "released_textbook"}));
}

TEST(Norm, RefusesWhatItCannotDo) {
  const auto check = [](NormOptions options, const std::string& part) {
    EXPECT_TRUE(refuses({part}, [&] { validate(options, 64); }));
  };
  check({.rule = "fast"}, "expected rule to be one of exact");
  check({.kind = "zca", .group_size = 7}, "group_size to divide the layer's 64 channels, got 7");
  check({.kind = "pca", .group_size = 4, .components = 5}, "components <= 4");
  check({.kind = "pca", .energy = 0}, "energy > 0, got 0");
  check({.kind = "zca", .eps = 0}, "eps > 0, got 0");
  check({.rule = "power_method", .parameter = 0.5}, "iterations");
  EXPECT_TRUE(refuses({"terms"}, [] { validate({.rule = "taylor", .parameter = -1}, 64); }));
}

}  // namespace
}  // namespace keel::lab
