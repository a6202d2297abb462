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

// Neither recomputed statistics nor those that follow the weights change a bit of training, nor the ones the others.
TEST(RecalibrateTest, TrainingIsTheSameToTheLastBit) {
  const DataSet data = test::small_data();
  for (const char* norm : {"batch", "zca", "pca"}) {
    struct Case {
      std::int64_t recalibrate;
      const char* follow;
      test::TemporaryFolder folder = {};
      Recorder told = {};
      Result result = {};
    } plain{0, "none"}, twice{4, "none"}, thrice{4, "all"};
    TrainOptions options = test::small_options(norm);
    options.epochs = 3;
    options.follow_every = 4;
    for (Case* one : {&plain, &twice, &thrice}) {
      options.recalibrate = one->recalibrate;
      options.follow = one->follow;
      options.run = one->folder.path();
      one->result = train(options, data, one->told);
      EXPECT_EQ(one->result.test_error, plain.result.test_error) << norm;
      test::expect_same_steps(one->told, plain.told, norm);
      double seconds = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        const EpochRecord& epoch = one->told.epochs[i];
        EXPECT_EQ(epoch.test_loss, plain.told.epochs[i].test_loss) << norm << i;
        EXPECT_EQ(std::isnan(epoch.recalibration_seconds), one == &plain);
        EXPECT_EQ(std::isnan(epoch.recalibrated_test_loss), one == &plain);
        EXPECT_EQ(std::isnan(epoch.followed_test_loss), one != &thrice);
        EXPECT_NE(epoch.followed_test_loss, epoch.test_loss) << norm << i;
        if (one == &thrice) {
          EXPECT_EQ(epoch.recalibrated_test_loss, twice.told.epochs[i].recalibrated_test_loss);
        }
        seconds += one == &plain ? 0 : epoch.recalibration_seconds;
      }
      EXPECT_EQ(one->result.recalibration_seconds, seconds);
      EXPECT_LT(seconds, one->result.seconds);
      // The spectrum is that of the last training step.
      if (one->told.layer.values.defined()) {
        EXPECT_TRUE(one->told.layer.values.equal(plain.told.layer.values));
        EXPECT_TRUE(one->told.layer.covariance.equal(plain.told.layer.covariance));
      }
      // Checkpoints during the run have the statistics of training. The last one has recomputed ones.
      for (const std::int64_t step : {12, 18}) {
        const bool recomputed = step == 18 && one != &plain;
        const Checkpoint there = at(one->folder.path(), step),
                         expected = at(plain.folder.path(), step);
        EXPECT_EQ(there.recalibrated, recomputed ? 4 : 0);
        EXPECT_EQ(there.tensors.metadata.count("recalibrated"), recomputed);
        for (const auto& [name, tensor] : expected.tensors.tensors)
          EXPECT_EQ(there.tensors.tensors.at(name).equal(tensor),
                    !recomputed || !is_statistic(name))
              << name;
        EXPECT_EQ(there.tensors.tensors.count("following.conv1.looks"), one == &thrice);
      }
    }
    const EpochRecord& last = thrice.told.epochs.back();
    EXPECT_EQ(thrice.result.recalibrated_test_error, last.recalibrated_test_error);
    EXPECT_EQ(thrice.result.followed_test_error, last.followed_test_error);
    options.run.clear();
    EXPECT_EQ(evaluate(load_model(at(twice.folder.path(), 18)), data.test, data, options).error,
              twice.result.recalibrated_test_error);
  }
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

// In the first layer the statistics that follow are those of the images, whatever happened to the weights.
TEST(FollowTest, TheFirstNormHasTheStatisticsThatRecalibratingGives) {
  const DataSet data = test::small_data(32);
  for (const char* norm : {"batch", "zca"}) {
    TrainOptions options = test::small_options(norm);
    options.follow = "tested";
    options.follow_every = 4;
    options.batch = 32;
    options.augmentation = false;
    options.recalibrate = 1;
    options.recalibrate_norms = "tested";
    options.model.norm.rank = "full";
    TrainingStep training = test::training_of(options, data);
    for (int step = 0; step < 3; ++step) training.run(0, 0.1);
    ResNet& model = training.model();
    model->eval();
    model->tested().front()->following()->refresh();
    std::map<std::string, Tensor> followed;
    for (const auto& item : model->named_buffers()) followed[item.key()] = item.value().clone();
    EXPECT_EQ(Recalibrator(model, data.train, augment_options(data, 1), options).run(1), 1);
    for (const auto& item : model->named_buffers()) {
      const std::string& name = item.key();
      if (name.find("running_") == std::string::npos) continue;
      if (name.rfind("bn1.", 0) == 0)
        EXPECT_TRUE(item.value().allclose(followed.at(name), 1e-3, 1e-4)) << norm << name;
      else
        EXPECT_TRUE(item.value().equal(followed.at(name))) << name;  // that layer alone
    }
  }
}

TEST(FollowTest, NamesWhatItCannotFollow) {
  TrainOptions options = test::small_options("none");
  options.follow = "all";
  EXPECT_NE(test::error_of([&] { validate(options); }).find("expected a norm that can follow"),
            std::string::npos);
  options.model.norm.kind = "zca";
  options.model.norm.rule = "textbook";
  EXPECT_THROW(validate(options), Error);
}

}  // namespace
}  // namespace keel::lab
