// Folding layers into the convolution or linear layer before them, for evaluation.

#include "layers_support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

/// Layers in eval mode, after two batches.
std::vector<Layer> trained(const nn::WhiteningOptions& options, at::ScalarType type) {
  std::vector<Layer> all = layers(options);
  for (const Layer& layer : all) {
    layer->to(type);
    if (layer->weight.defined()) scramble(layer);
    layer(activations({8, options.num_features, 5}, 1, type));
    layer(activations({8, options.num_features, 5}, 2, type));
    layer->eval();
  }
  return all;
}

template <typename Before>
void expect_folds(const Layer& layer, Before before, const Tensor& x) {
  const torch::NoGradGuard no_grad;
  before->to(x.scalar_type());
  const Tensor weight = before->weight.clone();
  Before after = layer->fold_into(before);
  const double tolerance = x.scalar_type() == at::kDouble ? 1e-13 : 2e-6;
  EXPECT_LT(relative_error(after(x), layer(before(x))), tolerance) << layer.name;
  EXPECT_TRUE(torch::equal(before->weight, weight));
  EXPECT_FALSE(after->weight.is_alias_of(before->weight));
  EXPECT_EQ(after->weight.scalar_type(), x.scalar_type());
  EXPECT_TRUE(after->bias.defined());
}

TEST(Fold, JoinsEveryLinearLayerExactly) {
  torch::manual_seed(1);
  for (const auto type : {at::kDouble, at::kFloat})
    for (const bool affine : {true, false})
      for (const bool bias : {true, false})
        for (const Layer& layer :
             trained({.num_features = 8, .group_size = 4, .affine = affine}, type)) {
          using namespace torch::nn;
          expect_folds(layer, Conv1d(Conv1dOptions(3, 8, 3).padding(1).bias(bias)),
                       random({2, 3, 7}, 3, type));
          expect_folds(layer,
                       Conv2d(Conv2dOptions(4, 8, {3, 2})
                                  .stride({2, 1})
                                  .padding({1, 0})
                                  .dilation({1, 2})
                                  .groups(2)
                                  .bias(bias)
                                  .padding_mode(torch::kReflect)),
                       random({2, 4, 7, 6}, 3, type));
          expect_folds(layer, Conv2d(Conv2dOptions(3, 8, 3).padding(torch::kSame).bias(bias)),
                       random({2, 3, 7, 6}, 3, type));
          expect_folds(layer, Conv3d(Conv3dOptions(3, 8, 2).bias(bias)),
                       random({2, 3, 4, 5, 3}, 3, type));
          expect_folds(layer, Linear(LinearOptions(5, 8).bias(bias)), random({6, 5}, 3, type));
        }
}

TEST(Fold, AsAPlainConvolution) {
  const torch::NoGradGuard no_grad;
  for (const auto type : {at::kDouble, at::kFloat})
    for (const std::int64_t d : {1, 4, 8})
      for (const Layer& layer : trained({.num_features = 8, .group_size = d}, type)) {
        const Tensor x = activations({3, 8, 5, 2}, 3, type);
        torch::nn::Conv2d plain = layer->as_conv1x1();
        EXPECT_EQ(plain->options.groups(), 8 / d);
        EXPECT_FALSE(plain->is_training());
        EXPECT_EQ(plain->weight.scalar_type(), type);
        EXPECT_LT(relative_error(plain(x), layer(x)), type == at::kDouble ? 1e-14 : 1e-6);
      }
}

TEST(Fold, RefusesWhatWouldNotBeTheSame) {
  const Layer layer = trained({.num_features = 8, .group_size = 4}, at::kFloat)[0];
  using namespace torch::nn;
  EXPECT_TRUE(
      fails_with("keel::nn::ZcaWhitening::fold_into: groups of 4 channels do not lie inside "
                 "the convolution's 4 groups of 2",
                 [&] { layer->fold_into(Conv2d(Conv2dOptions(8, 8, 3).groups(4))); }));
  EXPECT_TRUE(fails_with("expected a convolution to 8 channels, got one to 6",
                         [&] { layer->fold_into(Conv2d(Conv2dOptions(8, 6, 3))); }));
  EXPECT_TRUE(fails_with("expected a linear layer to 8 channels, got one to 6",
                         [&] { layer->fold_into(Linear(8, 6)); }));
  layer->train();
  EXPECT_TRUE(
      fails_with("keel::nn::ZcaWhitening::fold_into: expected a layer in eval mode with "
                 "running statistics, got one in training mode",
                 [&] { layer->fold_into(Linear(8, 8)); }));
  EXPECT_TRUE(
      fails_with("::as_conv1x1: expected a layer in eval mode", [&] { layer->as_conv1x1(); }));
  nn::ZcaWhitening untracked({.num_features = 8, .track_running_stats = false});
  untracked->eval();
  EXPECT_TRUE(fails_with("got one without running statistics", [&] { untracked->as_conv1x1(); }));
}

struct DoubledImpl : torch::nn::Conv2dImpl {
  using torch::nn::Conv2dImpl::Conv2dImpl;
  Tensor forward(const Tensor& x) { return 2 * torch::nn::Conv2dImpl::forward(x); }
};

TEST(Fold, RefusesLayersThatAreMoreThanTheirWeightAndBias) {
  const Layer layer = trained({.num_features = 8, .group_size = 4}, at::kFloat)[0];
  using namespace torch::nn;
  const auto options = Conv2dOptions(3, 8, 3);
  EXPECT_TRUE(fails_with(
      "::fold_into: expected a plain convolution, got one with a class of its own",
      [&] { layer->fold_into(Conv2d(std::shared_ptr<Conv2dImpl>(new DoubledImpl(options)))); }));
  const auto refused = [&](const std::string& part, auto&& change) {
    Conv2d convolution(options);
    change(convolution);
    EXPECT_TRUE(fails_with("keel::nn::ZcaWhitening::fold_into: expected a plain convolution, got " +
                               std::string("one with ") + part,
                           [&] { layer->fold_into(convolution); }));
  };
  refused("parameter weight_g",
          [](Conv2d& c) { c->register_parameter("weight_g", torch::ones(8)); });
  refused("buffer weight_mask",
          [](Conv2d& c) { c->register_buffer("weight_mask", torch::ones(8)); });
  refused("submodule norm", [](Conv2d& c) { c->register_module("norm", Linear(8, 8)); });
  refused("no weight", [](Conv2d& c) { c->weight = Tensor(); });
  Linear complex(3, 8);
  complex->to(torch::kComplexFloat);
  EXPECT_TRUE(fails_with("expected real floating-point parameters, got complex64",
                         [&] { layer->fold_into(complex); }));
}

}  // namespace
}  // namespace keel::test
