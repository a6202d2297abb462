#include "lab/train/step.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/sgd.h>

#include <limits>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

using torch::Tensor;

const torch::Device kCpu(torch::kCPU);

ResNet model_of(const TrainOptions& options) {
  torch::manual_seed(options.seed);
  return ResNet(options.model);
}

TrainingStep step_of(const TrainOptions& options, const DataSet& data) {
  return TrainingStep(model_of(options), data.train, augment_options(data, options.seed), options,
                      kCpu);
}

struct Setting {
  const char* norm;
  bool channels_last;
};
class TrainingStepTest : public ::testing::TestWithParam<Setting> {};

/// The same steps written with torch's own pieces.
struct PlainLoop {
  double loss_sum = 0, error_sum = 0, norm = 0;
  Tensor values;  ///< all parameters

  /// `move` seeds random signs, by which the initial weights move 16 units in the last place. -move is the opposite.
  PlainLoop(const TrainOptions& options, const std::vector<Batch>& batches, int move = 0) {
    ResNet model = model_of(options);
    torch::manual_seed(std::uint64_t(std::abs(move)));
    for (Tensor& weight : model->parameters())
      weight.data() *= 1 + (move > 0   ? 1
                            : move < 0 ? -1
                                       : 0) *
                               0x1p-19 * torch::randint_like(weight, 2).mul(2).sub(1);
    torch::optim::SGD sgd(model->parameters(),
                          torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(5e-4));
    auto criterion = torch::nn::CrossEntropyLoss(
        torch::nn::CrossEntropyLossOptions().label_smoothing(options.label_smoothing));
    for (const Batch& batch : batches) {
      sgd.zero_grad();
      const Tensor logits = model->forward(batch.images.contiguous());
      const Tensor loss = criterion(logits, batch.labels);
      loss.backward();
      norm = std::max(norm, model->named_parameters()["conv1.weight"].grad().norm().item<double>());
      sgd.step();
      loss_sum += loss.item<double>();
      error_sum += double((logits.argmax(1) != batch.labels).sum().item<std::int64_t>());
    }
    values = flat(*model);
  }

  static Tensor flat(const torch::nn::Module& model) {
    std::vector<Tensor> all;
    for (const auto& item : model.named_parameters())
      all.push_back(item.value().detach().contiguous().flatten());
    return torch::cat(all);
  }
};

// A ReLU whose input is within a rounding of zero may be on in one loop and off in the other, and then the gradient
// jumps. So the bound is what roundings do to the plain loop itself: the largest effect of two moves and their
// opposites, one of which switches such a ReLU, times four, since several may switch.
TEST_P(TrainingStepTest, IsAPlainTrainingLoop) {
  TrainOptions options = test::small_options(GetParam().norm);
  options.channels_last = GetParam().channels_last;
  options.label_smoothing = 0.1;
  const DataSet data = test::small_data();
  TrainingStep training = step_of(options, data);
  training.start_epoch(3);
  std::vector<Batch> batches;
  for (std::int64_t batch = 0; batch < 4; ++batch) {
    training.run(batch, 0.05);
    training.select(batch);
    batches.push_back(training.selected());
  }
  const PlainLoop plain(options, batches);
  double loss = 0, norm = 0, values = 0;
  for (const int move : {-2, -1, 1, 2}) {
    const PlainLoop moved(options, batches, move);
    loss = std::max(loss, std::abs(moved.loss_sum - plain.loss_sum));
    norm = std::max(norm, std::abs(moved.norm - plain.norm));
    values = std::max(values, (moved.values - plain.values).norm().item<double>());
  }
  const Readings read = training.read();
  EXPECT_NEAR(read.loss_sum, plain.loss_sum, 4 * loss + 0x1p-20 * plain.loss_sum);
  EXPECT_EQ(read.error_sum, plain.error_sum);
  EXPECT_NEAR(read.gradient_norm, plain.norm, 4 * norm + 0x1p-20 * plain.norm);
  EXPECT_EQ(read.good_steps, 4);
  const Tensor found = PlainLoop::flat(*training.model());
  EXPECT_LT((found - plain.values).norm().item<double>(), 4 * values);
  // The bounds themselves are of the size of rounding.
  EXPECT_LT(values, 1e-3 * plain.values.norm().item<double>());

  training.start_interval();
  const Readings after = training.read();
  EXPECT_EQ(after.loss_sum, 0);
  EXPECT_EQ(after.good_steps, 4);
}

INSTANTIATE_TEST_SUITE_P(Settings, TrainingStepTest,
                         ::testing::Values(Setting{"batch", false}, Setting{"batch", true},
                                           Setting{"zca", false}, Setting{"zca", true},
                                           Setting{"pca", false}, Setting{"none", false}));

TEST(TrainingStepTest, AnEpochsBatchesHoldEveryImageOnceInAnOrderOfItsOwn) {
  const TrainOptions options = test::small_options();
  const DataSet data = test::small_data(96 + 5);  // the last five are dropped
  TrainingStep one = step_of(options, data), other = step_of(options, data);
  EXPECT_EQ(one.batches(), 6);
  const auto order = [&](TrainingStep& training, std::int64_t epoch) {
    training.start_epoch(epoch);
    std::vector<Tensor> images;
    for (std::int64_t batch = 0; batch < 6; ++batch) {
      training.select(batch);
      images.push_back(training.selected().images);
    }
    return torch::cat(images);
  };
  const Tensor first = order(one, 0);
  EXPECT_TRUE(first.equal(order(other, 0)));
  EXPECT_FALSE(first.equal(order(one, 1)));
  TrainOptions plain = options;
  plain.augmentation = false;
  TrainingStep raw = step_of(plain, data);
  const Tensor a = order(raw, 0), b = order(raw, 1);
  EXPECT_FALSE(a.equal(b));
  EXPECT_EQ(std::get<0>(at::unique_dim(a.flatten(1), 0)).size(0), 96);
}

TEST(TrainingStepTest, CountsGoodStepsUpToTheFirstNonFiniteOneAndChangesNothingAfter) {
  for (const double poison :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const TrainOptions options = test::small_options();
    TrainingStep training = step_of(options, test::small_data());
    training.start_epoch(0);
    training.run(0, 0.1);
    training.run(1, 0.1);
    ASSERT_EQ(training.read().good_steps, 2);
    const torch::NoGradGuard no_grad;
    Tensor weight = training.model()->named_parameters()["layer3.0.conv2.weight"];
    const Tensor good = weight.clone();
    weight[0][0][0][0] = poison;
    const Tensor before = training.parameters().values.clone();
    training.run(2, 0.1);
    training.run(3, 0.1);
    EXPECT_EQ(training.read().good_steps, 2);
    const Tensor others = before.isfinite();
    EXPECT_TRUE(
        training.parameters().values.masked_select(others).equal(before.masked_select(others)));
    weight.copy_(good);
    training.run(4, 0.1);  // once halted, halted
    EXPECT_EQ(training.read().good_steps, 2);
  }
}

TEST(TrainingStepTest, BFloat16StaysNearFloat32) {
  if (!bfloat16_fault().empty()) GTEST_SKIP() << bfloat16_fault();
  TrainOptions options = test::small_options("zca");
  const DataSet data = test::small_data();
  const auto loss_in = [&](const char* precision) {
    options.precision = precision;
    TrainingStep training = step_of(options, data);
    training.start_epoch(0);
    for (std::int64_t batch = 0; batch < 3; ++batch) training.run(batch, 0.02);
    EXPECT_EQ(training.read().good_steps, 3);
    EXPECT_EQ(training.parameters().values.scalar_type(), torch::kFloat);
    return training.read().loss_sum / 3;
  };
  const double exact = loss_in("float32"), rounded = loss_in("bfloat16");
  EXPECT_NE(exact, rounded);
  EXPECT_NEAR(rounded, exact, 0.05 * exact);
}

}  // namespace
}  // namespace keel::lab
