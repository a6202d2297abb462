// Runs with more than one layer under test, or with one that is not the first.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

using test::training_of;
using torch::Tensor;

TrainOptions options_at(const std::string& where, const std::string& norm = "zca") {
  TrainOptions options = test::small_options(norm);
  options.model.where = where;
  options.model.norm.group_size = 4;
  return options;
}

TEST(WhereTest, EveryLayerHasItsState) {
  const TrainOptions options = options_at("all");
  TrainingStep training = training_of(options);
  training.run(0, 0.0);
  const LayerStates states = layer_states(training.model());
  const auto sites = norm_sites(options.model);
  ASSERT_EQ(states.size(), sites.size());
  double gap = INFINITY;
  std::int64_t rank = 1000;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    EXPECT_EQ(states[i].name, sites[i].name);
    EXPECT_EQ(states[i].values.sizes(), (std::vector<std::int64_t>{sites[i].channels / 4, 4}));
    EXPECT_EQ(states[i].covariance.sizes(),
              (std::vector<std::int64_t>{sites[i].channels / 4, 4, 4}));
    gap = std::min(gap, states[i].smallest_gap());
    rank = std::min(rank, states[i].smallest_rank());
  }
  EXPECT_EQ(smallest_gap(states), gap);
  EXPECT_EQ(smallest_rank(states), rank);
  EXPECT_FALSE(layer_states(training.model(), Covariances::kWithout)[0].covariance.defined());
  const auto json = to_json(states, 3);
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["smallest_gap"].get<double>(), gap);
  ASSERT_EQ(json["layers"].size(), sites.size());
  EXPECT_EQ(json["layers"][5]["name"], "layer2.0.downsample.1");
  EXPECT_EQ(json["layers"][5]["covariance"][1].size(), 4u);
}

// All covariances of a large network would fill a disk within a few epochs.
TEST(WhereTest, CovariancesAreWrittenUpToABound) {
  LayerStates states(3);
  for (LayerState& state : states) state.covariance = torch::zeros({1, 700, 700}, torch::kDouble);
  states[2].covariance = torch::zeros({1, 2, 2}, torch::kDouble);
  const auto layers = to_json(states, 1)["layers"];
  EXPECT_FALSE(layers[0]["covariance"].is_null());
  EXPECT_FALSE(layers[1]["covariance"].is_null());
  states[1].covariance = torch::zeros({1, 800, 800}, torch::kDouble);
  const auto fewer = to_json(states, 1)["layers"];
  EXPECT_TRUE(fewer[1]["covariance"].is_null());
  EXPECT_FALSE(fewer[2]["covariance"].is_null());
}

TEST(WhereTest, TheGradientNormIsThatOfWhatComesBeforeTheLayer) {
  const auto norm_with = [](const std::string& where, const std::vector<std::string>& before) {
    TrainingStep training = training_of(options_at(where, "none"));
    const Batch batch = training.selected();
    training.run(0, 0.0);
    // The same step by hand.
    ResNet& model = training.model();
    training.parameters().clear_gradients();
    training.loss(model->forward(batch.images), batch.labels).backward();
    double squares = 0;
    for (const std::string& name : before)
      squares +=
          model->named_parameters()[name].grad().to(torch::kDouble).pow(2).sum().item<double>();
    EXPECT_NEAR(training.read().gradient_norm, std::sqrt(squares), 1e-5 * std::sqrt(squares))
        << where;
  };
  norm_with("first", {"conv1.weight"});
  norm_with("all", {"conv1.weight"});
  norm_with("layer1.0.bn2,layer3.0.bn1",
            {"conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight",
             "layer1.0.bn1.weight", "layer1.0.bn1.bias", "layer1.0.conv2.weight"});
}

/// Two filters of the convolution before the norm are zero, so two eigenvalues are equal.
Failure failure_behind(const std::string& norm, const std::string& convolution) {
  TrainOptions options = options_at(norm);
  options.model.norm.rule = "analytic";
  options.model.norm.rank = "full";  // keeps the equal eigenvalues
  TrainingStep training = training_of(options);
  {
    const torch::NoGradGuard no_grad;
    training.model()->named_parameters()[convolution + ".weight"].narrow(0, 0, 2).zero_();
  }
  const Tensor before = training.parameters().values.clone();
  const Failure failure = diagnose(training, 1);
  EXPECT_TRUE(training.parameters().values.equal(before));
  return failure;
}

TEST(WhereTest, AFailureIsFoundInTheVeryLayer) {
  for (const auto& [norm, convolution] : {std::pair("bn1", "conv1"),
                                          {"layer2.0.bn1", "layer2.0.conv1"},
                                          {"layer2.0.bn2", "layer2.0.conv2"},
                                          {"layer3.0.downsample.1", "layer3.0.downsample.0"}}) {
    const Failure failure = failure_behind(norm, convolution);
    EXPECT_EQ(failure.layer, norm);
    EXPECT_EQ(failure.where, "gradient of " + std::string(convolution) + ".weight");
    EXPECT_EQ(failure.smallest_gap, 0) << norm;
    EXPECT_EQ(failure.what, "step 1: the " + failure.where + " is not finite, beginning in " +
                                failure.layer + " (closest eigenvalues 0 apart)");
  }
}

// The gap in the message is that of the layer that is blamed.
TEST(WhereTest, TheGapIsThatOfTheLayerWhereItBegan) {
  TrainOptions options = options_at("all");
  options.model.norm.rank = "full";  // keeps the equal eigenvalues
  TrainingStep training = training_of(options);
  {
    const torch::NoGradGuard no_grad;
    training.model()->named_parameters()["layer1.0.conv1.weight"].narrow(0, 0, 2).zero_();
    training.model()->named_parameters()["layer2.0.bn2.weight"].fill_(NAN);
  }
  const Failure failure = diagnose(training, 1);
  EXPECT_EQ(failure.layer, "layer2.0.bn2");
  EXPECT_GT(failure.smallest_gap, 0);
  const LayerStates states = layer_states(training.model());
  EXPECT_EQ(smallest_gap(states), 0);  // of layer1.0.bn1
}

}  // namespace
}  // namespace keel::lab
