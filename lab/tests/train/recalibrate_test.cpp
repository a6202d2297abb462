#include "lab/train/recalibrate.h"

#include <gtest/gtest.h>

#include "lab/tests/train/support.h"
#include "lab/train/checkpoint.h"
#include "lab/train/trainer.h"

namespace keel::lab {
namespace {

using test::Recorder;
using torch::Tensor;

bool is_statistic(const std::string& name) {
  return name.find("running_") != std::string::npos ||
         name.find("num_batches_tracked") != std::string::npos;
}

Checkpoint at(const std::filesystem::path& run, std::int64_t step) {
  return load_checkpoint(run / "checkpoints" / ("step-000000" + std::to_string(step) + ".json"));
}

TEST(RecalibrateTest, TrainingIsTheSameToTheLastBit) {
  const DataSet data = test::small_data();
  for (const char* norm : {"batch", "zca", "pca"}) {
    const test::TemporaryFolder without, with;
    TrainOptions options = test::small_options(norm);
    options.epochs = 3;
    Recorder plain, twice;
    options.run = without.path();
    options.recalibrate = 0;
    const Result expected = train(options, data, plain);
    options.run = with.path();
    options.recalibrate = 4;
    const Result result = train(options, data, twice);

    EXPECT_TRUE(std::isnan(expected.recalibrated_test_error));
    EXPECT_TRUE(std::isfinite(result.recalibrated_test_error)) << norm;
    EXPECT_EQ(result.test_error, expected.test_error) << norm;
    test::expect_same_steps(twice, plain, norm);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(twice.epochs[i].test_loss, plain.epochs[i].test_loss) << norm << i;
      EXPECT_GT(twice.epochs[i].recalibration_seconds, 0);
      EXPECT_TRUE(std::isnan(plain.epochs[i].recalibration_seconds));
    }
    EXPECT_EQ(twice.epochs[2].recalibrated_test_error, result.recalibrated_test_error);
    double seconds = 0;
    for (const EpochRecord& epoch : twice.epochs) seconds += epoch.recalibration_seconds;
    EXPECT_EQ(result.recalibration_seconds, seconds);
    EXPECT_LT(seconds, result.seconds);
    EXPECT_EQ(expected.recalibration_seconds, 0);
    // The spectrum is that of the last training step.
    if (twice.layer.values.defined()) {
      EXPECT_TRUE(twice.layer.values.equal(plain.layer.values));
      EXPECT_TRUE(twice.layer.covariance.equal(plain.layer.covariance));
    }

    // Checkpoints during the run have the statistics of training. The last one has recomputed ones.
    EXPECT_EQ(read_file(with / "checkpoints/step-00000012.safetensors"),
              read_file(without / "checkpoints/step-00000012.safetensors"));
    EXPECT_EQ(at(with.path(), 12).recalibrated, 0);
    const Checkpoint last = at(with.path(), 18), plain_last = at(without.path(), 18);
    EXPECT_EQ(last.recalibrated, 4);
    EXPECT_EQ(last.tensors.metadata.at("recalibrated"), "4 batches");
    EXPECT_EQ(plain_last.tensors.metadata.count("recalibrated"), 0u);
    for (const auto& [name, tensor] : last.tensors.tensors)
      EXPECT_EQ(tensor.equal(plain_last.tensors.tensors.at(name)), !is_statistic(name)) << name;
    options.run.clear();
    EXPECT_EQ(evaluate(load_model(last), data.test, data, options).error,
              result.recalibrated_test_error);
  }
}

// The process's random numbers and the plain test error are unaffected too.
TEST(RecalibrateTest, HowManyBatchesChangesNothingElse) {
  const DataSet data = test::small_data();
  TrainOptions options = test::small_options("zca");
  const auto told = [&](std::int64_t batches) {
    options.recalibrate = batches;
    Recorder recorder;
    train(options, data, recorder);
    std::vector<double> numbers{torch::rand({1}, torch::kDouble).item<double>()};
    for (const auto& step : recorder.steps) numbers.push_back(step.loss);
    for (const auto& epoch : recorder.epochs) numbers.push_back(epoch.test_loss);
    return numbers;
  };
  const auto without = told(0);
  EXPECT_EQ(told(1), without);
  EXPECT_EQ(told(TrainOptions().recalibrate), without);
}

/// The statistics of the first norm's input over all training images, without augmentation.
std::pair<Tensor, Tensor> moments_before_norm(ResNet& model, const DataSet& data) {
  const torch::NoGradGuard no_grad;
  const Tensor weight = model->named_parameters()["conv1.weight"];
  const Tensor x = torch::conv2d(normalise(data.train.pixels, augment_options(data, 0)), weight, {},
                                 /*stride=*/1, /*padding=*/1)
                       .to(torch::kDouble);
  return {x.mean({0, 2, 3}), x.var(std::vector<std::int64_t>{0, 2, 3}, /*unbiased=*/true)};
}

TEST(RecalibrateTest, OneBatchOfAllImagesGivesTheirStatistics) {
  const DataSet data = test::small_data(32);
  TrainOptions options = test::small_options("batch");
  options.batch = 32;
  options.augmentation = false;
  options.recalibrate = 50;
  torch::manual_seed(3);
  ResNet model(options.model);
  model->eval();
  Recalibrator again(model, data.train, augment_options(data, 1), options);
  EXPECT_EQ(again.run(7), 1);  // an epoch
  EXPECT_FALSE(model->is_training());
  const auto [mean, variance] = moments_before_norm(model, data);
  // Float32 sums of 32 * 64 numbers of order 1, added in another order.
  EXPECT_TRUE(
      model->named_buffers()["bn1.running_mean"].to(torch::kDouble).allclose(mean, 1e-4, 1e-5));
  EXPECT_TRUE(
      model->named_buffers()["bn1.running_var"].to(torch::kDouble).allclose(variance, 1e-4, 1e-5));
  EXPECT_EQ(model->named_buffers()["bn1.num_batches_tracked"].item<std::int64_t>(), 1);
}

TEST(RecalibrateTest, SeedAndStepChooseTheImages) {
  const DataSet data = test::small_data();
  TrainOptions options = test::small_options("zca");
  options.recalibrate = 2;
  torch::manual_seed(3);
  ResNet model(options.model);
  const auto statistics = [&](std::uint64_t seed, std::int64_t step) {
    options.seed = seed;
    Recalibrator(model, data.train, augment_options(data, 1), options).run(step);
    return model->named_buffers()["bn1.running_mean"].clone();
  };
  torch::manual_seed(9);
  const Tensor first = statistics(1, 5), drawn = torch::rand({4});
  EXPECT_TRUE(statistics(1, 5).equal(first));
  const Tensor later = statistics(1, 6);
  EXPECT_FALSE(later.equal(first));
  EXPECT_FALSE(statistics(2, 5).equal(first));
  // A recalibrator that was used before gives the same result.
  options.seed = 1;
  Recalibrator several(model, data.train, augment_options(data, 1), options);
  for (const auto& [step, expected] : {std::pair(6, later), {5, first}, {6, later}}) {
    several.run(step);
    EXPECT_TRUE(model->named_buffers()["bn1.running_mean"].equal(expected)) << step;
  }
  torch::manual_seed(9);
  EXPECT_TRUE(torch::rand({4}).equal(drawn));  // it draws none of the process's numbers
}

TEST(RecalibrateTest, ANetworkWhoseStatisticsAreLostIsEvaluated) {
  const DataSet data = test::small_data();
  TrainOptions options = test::small_options("zca");
  options.epochs = 6;
  options.augmentation = false;
  options.learning_rate = 0.05;
  const test::TemporaryFolder folder;
  options.run = folder.path();
  Recorder told;
  train(options, data, told);
  ResNet model = load_model(*newest_checkpoint(folder.path(), {}));
  for (Tensor& buffer : model->buffers()) buffer.zero_();
  options.recalibrate = 6;
  EXPECT_GT(evaluate(model, data.test, data, options).error, 0.5);  // chance is 0.75
  EXPECT_LT(evaluate(model, data.test, data, options, 36).error, 0.4);
  EXPECT_LT(evaluate(model, data.test, data, options).error, 0.4);  // the model keeps them
  DataSet few = test::small_data(8);
  EXPECT_EQ(test::error_of([&] { evaluate(model, few.test, few, options, 36); }),
            "expected at least a batch of 16 training images, got 8");
}

}  // namespace
}  // namespace keel::lab
