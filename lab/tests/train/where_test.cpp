// Runs with more than one layer under test, or with one that is not the first.

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "lab/storage/files.h"
#include "lab/tests/train/support.h"
#include "lab/train/checkpoint.h"
#include "lab/train/diagnose.h"
#include "lab/train/evaluate.h"

namespace keel::lab {
namespace {

using test::Recorder;
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

TEST(WhereTest, PatternsNameTheNormsTheyFit) {
  const auto names = [](const std::string& where) {
    std::string all;
    for (const NormSite& site : tested_sites(options_at(where).model)) all += site.name + " ";
    return all;
  };
  EXPECT_EQ(names("bn1, layer*.bn2"), "bn1 layer1.0.bn2 layer2.0.bn2 layer3.0.bn2 ");
  EXPECT_EQ(names("layer?.0.downsample.1"), "layer2.0.downsample.1 layer3.0.downsample.1 ");
  EXPECT_THROW(names("layer9*"), Error);
  EXPECT_THROW(names("bn1,bn*"), Error);  // bn1 twice
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
  return diagnose(training, 1);
}

TEST(WhereTest, AFailureIsFoundInTheVeryLayer) {
  for (const auto& [norm, convolution] : {std::pair("layer2.0.bn1", "layer2.0.conv1"),
                                          {"layer2.0.bn2", "layer2.0.conv2"},
                                          {"layer3.0.downsample.1", "layer3.0.downsample.0"}}) {
    const Failure failure = failure_behind(norm, convolution);
    EXPECT_EQ(failure.layer, norm);
    EXPECT_EQ(failure.where, "gradient of " + std::string(convolution) + ".weight");
    EXPECT_EQ(failure.smallest_gap, 0) << norm;
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

TEST(WhereTest, ARunWithAllNormsLearnsTellsAndGoesOnToTheSameBits) {
  const DataSet data = test::small_data();
  for (const char* where : {"all", "layer1.0.bn2,layer3.0.downsample.1"}) {
    const test::TemporaryFolder whole, parts;
    TrainOptions options = options_at(where);
    options.epochs = 3;
    options.recalibrate = 2;
    options.run = whole.path();
    Recorder undisturbed;
    const Result expected = train(options, data, undisturbed);
    ASSERT_EQ(expected.status, "finished");
    EXPECT_LT(undisturbed.steps.back().loss, undisturbed.steps.front().loss);
    EXPECT_EQ(undisturbed.layers.size(), 3 * tested_sites(options.model).size());
    EXPECT_GT(undisturbed.steps.back().smallest_gap, 0);
    const auto spectrum = nlohmann::json::parse(read_file(whole / "spectrum.json"));
    EXPECT_EQ(spectrum["layers"].size(), tested_sites(options.model).size());

    test::Interrupter interrupter(8);
    options.run = parts.path();
    EXPECT_EQ(train(options, data, interrupter).status, "interrupted");
    options.resume = true;
    Recorder resumed;
    const Result result = train(options, data, resumed);
    EXPECT_EQ(result.test_error, expected.test_error);
    EXPECT_EQ(result.recalibrated_test_error, expected.recalibrated_test_error);
    const std::string last = "checkpoints/step-00000018.safetensors";
    EXPECT_EQ(read_file(parts.path() / last), read_file(whole.path() / last));

    // The checkpoint has the network that was evaluated last.
    const auto checkpoint = newest_checkpoint(whole.path(), {});
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(checkpoint->options.model.where, where);
    EXPECT_EQ(evaluate(load_model(*checkpoint), data.test, data, options).error,
              expected.recalibrated_test_error);
    options.model.where = "first";
    EXPECT_NE(test::error_of([&] { train(options, data, resumed); }).find("made with where"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace keel::lab
