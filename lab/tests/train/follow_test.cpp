// Runs whose norms follow the weights of the convolutions before them.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lab/storage/files.h"
#include "lab/tests/train/support.h"
#include "lab/train/checkpoint.h"
#include "lab/train/recalibrate.h"

namespace keel::lab {
namespace {

using test::Recorder;
using torch::Tensor;

TrainOptions options_of(const std::string& norm, const std::string& follow) {
  TrainOptions options = test::small_options(norm);
  options.epochs = 3;
  options.follow = follow;
  options.follow_every = 4;
  return options;
}

TEST(FollowTest, TrainingIsTheSameToTheLastBit) {
  const DataSet data = test::small_data();
  for (const char* norm : {"batch", "zca", "pca"}) {
    const test::TemporaryFolder without;
    TrainOptions options = options_of(norm, "none");
    options.run = without.path();
    options.recalibrate = 2;
    Recorder plain;
    const Result expected = train(options, data, plain);
    EXPECT_TRUE(std::isnan(expected.followed_test_error));
    for (const char* follow : {"tested", "all"}) {
      const test::TemporaryFolder with;
      options.run = with.path();
      options.follow = follow;
      Recorder told;
      const Result result = train(options, data, told);
      EXPECT_EQ(result.followed_test_error, told.epochs.back().followed_test_error);
      for (std::size_t i = 0; i < plain.steps.size(); ++i)
        EXPECT_EQ(told.steps[i].loss, plain.steps[i].loss) << norm << i;
      for (std::size_t i = 0; i < plain.epochs.size(); ++i) {
        EXPECT_EQ(told.epochs[i].test_loss, plain.epochs[i].test_loss) << norm << i;
        EXPECT_EQ(told.epochs[i].recalibrated_test_loss, plain.epochs[i].recalibrated_test_loss);
        EXPECT_TRUE(std::isfinite(told.epochs[i].followed_test_loss)) << norm << i;
        EXPECT_NE(told.epochs[i].followed_test_loss, told.epochs[i].test_loss) << norm << i;
      }
      // The last checkpoint has the recomputed statistics, as without following.
      const std::string last = "checkpoints/step-00000018.safetensors";
      const auto read = [&](const test::TemporaryFolder& folder) {
        return parse_safetensors(read_file(folder / last), last);
      };
      const SafeTensors one = read(without), other = read(with);
      for (const auto& [name, tensor] : one.tensors)
        EXPECT_TRUE(other.tensors.at(name).equal(tensor)) << name;
      EXPECT_GT(other.tensors.size(), one.tensors.size());
      Recorder resumed;
      options.resume = true;
      EXPECT_EQ(train(options, data, resumed).followed_test_error, result.followed_test_error);
      options.resume = false;
    }
  }
}

// In the first layer the statistics that follow are those of the images, whatever happened to the weights.
TEST(FollowTest, TheFirstNormHasTheStatisticsThatRecalibratingGives) {
  const DataSet data = test::small_data(32);
  for (const char* norm : {"batch", "zca"}) {
    TrainOptions options = options_of(norm, "tested");
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
  TrainOptions options = options_of("none", "all");
  EXPECT_NE(test::error_of([&] { validate(options); }).find("expected a norm that can follow"),
            std::string::npos);
  options = options_of("zca", "tested");
  options.model.norm.rule = "textbook";
  EXPECT_THROW(validate(options), Error);
}

}  // namespace
}  // namespace keel::lab
