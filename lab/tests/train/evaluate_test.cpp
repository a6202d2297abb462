#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include "lab/data/augment.h"
#include "lab/tests/train/support.h"
#include "lab/train/trainer.h"

namespace keel::lab {
namespace {

TEST(EvaluateTest, IsThePlainEvaluationWhateverTheBatch) {
  TrainOptions options = test::small_options("zca");
  const DataSet data = test::small_data(96, 37);
  torch::manual_seed(5);
  ResNet model(options.model);
  model->train();
  model->forward(normalise(data.train.pixels, augment_options(data, 0)));  // running statistics
  for (const std::int64_t batch : {1, 10, 37, 500}) {
    options.evaluation_batch = batch;
    const Evaluation result = evaluate(model, data.test, data, options);
    EXPECT_TRUE(model->is_training());

    const torch::NoGradGuard no_grad;
    model->eval();
    const auto logits = model->forward(normalise(data.test.pixels, augment_options(data, 0)));
    model->train();
    const auto loss = torch::nn::functional::cross_entropy(logits, data.test.labels);
    const auto answers = logits.argmax(1);
    EXPECT_NEAR(result.loss, loss.item<double>(), 1e-5);
    EXPECT_NEAR(result.error, answers.ne(data.test.labels).to(torch::kDouble).mean().item<double>(),
                1e-12);
    EXPECT_EQ(result.images, 37);
  }
}

TEST(EvaluateTest, ClassesGoByTheirNamesAndPixelsByWhatTheNetworkSaw) {
  DataSet data = test::small_data(8, 8);
  data.classes = {"cat", "dog", "emu", "fox"};
  Checkpoint checkpoint;
  checkpoint.classes = {"ant", "fox", "cat", "dog", "emu"};
  checkpoint.mean = {0.1, 0.2, 0.3};
  checkpoint.deviation = {0.5, 0.6, 0.7};
  const auto labels = data.test.labels.clone();
  as_trained_on(data, checkpoint);
  const std::int64_t place[] = {2, 3, 4, 1};
  for (std::int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(data.test.labels[i].item<std::int64_t>(), place[labels[i].item<std::int64_t>()]);
  EXPECT_EQ(data.classes, checkpoint.classes);
  EXPECT_EQ(data.mean, checkpoint.mean);
  EXPECT_EQ(data.deviation, checkpoint.deviation);

  DataSet other = test::small_data(8, 8);
  other.classes = {"cat", "dog", "emu", "yak"};
  EXPECT_NE(test::error_of([&] { as_trained_on(other, checkpoint); }).find("'yak'"),
            std::string::npos);
}

TEST(EvaluateTest, RefusesLabelsTheNetworkDoesNotHave) {
  const TrainOptions options = test::small_options();
  DataSet data = test::small_data();
  data.test.labels[0] = -1;
  EXPECT_EQ(test::error_of([&] { evaluate(ResNet(options.model), data.test, data, options); }),
            "expected labels from 0 to 3, got -1 to 3");
}

}  // namespace
}  // namespace keel::lab
