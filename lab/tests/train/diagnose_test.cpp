#include "lab/train/step.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

using test::training_of;
using torch::Tensor;

/// Sets an entry of a parameter.
void poison(TrainingStep& training, const std::string& parameter, double value) {
  const torch::NoGradGuard no_grad;
  training.model()->named_parameters()[parameter].view(-1)[0] = value;
}

TEST(DiagnoseTest, ANonFiniteLossBeginsInTheFirstLayerWithSuchAnOutput) {
  TrainingStep training = training_of(test::small_options());
  poison(training, "layer2.0.conv1.weight", std::numeric_limits<double>::quiet_NaN());
  const Failure failure = diagnose(training, 12);
  EXPECT_EQ(failure.where, "loss");
  EXPECT_EQ(failure.layer, "layer2.0.conv1");
  EXPECT_EQ(failure.step, 12);
  EXPECT_TRUE(std::isnan(failure.smallest_gap));
  EXPECT_EQ(failure.what, "step 12: the loss is not finite, beginning in layer2.0.conv1");
}

TEST(LayerStateTest, GapsAreThoseBetweenPairsWithAKeptDirection) {
  LayerState state;
  state.values =
      torch::tensor({{4.0, 3.0, 1e-4, 1e-4, -2e-4}, {9.0, 8.5, 4.0, 3.75, 3.75}}, torch::kDouble);
  state.rank = torch::tensor({2, 3}, torch::kLong);
  EXPECT_EQ(state.smallest_gap(), 0.25);
  state.rank = torch::tensor({2, 4}, torch::kLong);
  EXPECT_EQ(state.smallest_gap(), 0);
  state.rank = torch::tensor({1, 1}, torch::kLong);
  EXPECT_EQ(state.smallest_gap(), 0.5);
}

TEST(DiagnoseTest, AHealthyStepHasNoLayerToBlame) {
  TrainingStep training = training_of(test::small_options("zca"));
  const Failure failure = diagnose(training, 1);
  EXPECT_EQ(failure.where, "gradient");
  EXPECT_EQ(failure.layer, "");
  EXPECT_GT(failure.smallest_gap, 0);
}

TEST(LayerStateTest, IsTheLayersSpectrum) {
  TrainOptions options = test::small_options("zca");
  options.model.norm.group_size = 2;
  options.model.norm.eps = 1e-3;
  TrainingStep training = training_of(options);
  EXPECT_FALSE(layer_states(training.model()).at(0).values.defined());
  const Tensor images = training.selected().images;
  training.run(0, 0.0);
  const LayerStates states = layer_states(training.model());
  ASSERT_EQ(states.size(), 1u);
  const LayerState& state = states[0];
  EXPECT_EQ(state.name, "bn1");
  // Computed from the activations with torch's own operations.
  const torch::NoGradGuard no_grad;
  const Tensor x = training.model()->first_convolution().ptr()->forward(images).to(torch::kDouble);
  const Tensor samples = x.transpose(0, 1).flatten(1);
  ASSERT_EQ(state.covariance.sizes(), (std::vector<std::int64_t>{2, 2, 2}));
  for (std::int64_t group = 0; group < 2; ++group) {
    const Tensor centred =
        samples.narrow(0, 2 * group, 2) - samples.narrow(0, 2 * group, 2).mean(1, /*keepdim=*/true);
    const Tensor covariance = centred.matmul(centred.t()) / double(centred.size(1));
    EXPECT_TRUE(torch::allclose(state.covariance[group], covariance, 1e-4, 1e-6));
    const Tensor values = torch::linalg_eigvalsh(covariance, "L").flip(0) + 1e-3;
    EXPECT_TRUE(torch::allclose(state.values[group], values, 1e-4, 1e-6));
  }
  const double gap = (state.values.select(1, 0) - state.values.select(1, 1)).min().item<double>();
  EXPECT_EQ(state.smallest_gap(), gap);
  EXPECT_EQ(state.smallest_rank(), state.rank.min().item<std::int64_t>());
  const auto json = to_json(states, 5);
  EXPECT_EQ(json["layers"][0]["name"], "bn1");
  EXPECT_EQ(json["layers"][0]["values"][1][0].get<double>(), state.values[1][0].item<double>());
  EXPECT_EQ(json["step"], 5);
}

}  // namespace
}  // namespace keel::lab
