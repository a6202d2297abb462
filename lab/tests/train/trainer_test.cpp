#include "lab/train/trainer.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lab/tests/train/support.h"
#include "lab/train/checkpoint.h"
#include "lab/train/step.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::Recorder;

TEST(TrainerTest, LearnsAndTells) {
  TrainOptions options = test::small_options("zca");
  options.epochs = 6;
  options.augmentation = false;
  options.log_every = 4;
  options.learning_rate = 0.05;
  Recorder told;
  const Result result = train(options, test::small_data(), told);
  EXPECT_EQ(result.status, "finished");
  EXPECT_EQ(result.steps, 36);
  EXPECT_EQ(result.epochs, 6);
  EXPECT_LT(result.test_error, 0.4);  // chance is 0.75
  EXPECT_LE(result.best_test_error, result.test_error);
  EXPECT_GT(result.images_per_second, 0);
  EXPECT_EQ(told.starts, 1);
  EXPECT_EQ(told.finishes, 1);
  EXPECT_EQ(told.info.steps, 36);
  EXPECT_EQ(told.info.steps_per_epoch, 6);
  EXPECT_EQ(told.info.device, "cpu");
  EXPECT_EQ(told.info.parameters, 5112);

  std::vector<std::int64_t> logged;
  for (const StepRecord& record : told.steps) logged.push_back(record.step);
  EXPECT_EQ(logged, (std::vector<std::int64_t>{4, 6, 8, 12, 16, 18, 20, 24, 28, 30, 32, 36}));
  for (const StepRecord& record : told.steps) {
    EXPECT_GT(record.loss, 0);
    EXPECT_GT(record.gradient_norm_layer, 0);
    EXPECT_GT(record.smallest_gap, 0);
    EXPECT_GE(record.rank, 1);
    EXPECT_LE(record.rank, 4);
    EXPECT_EQ(record.epoch, (record.step - 1) / 6);
  }
  ASSERT_EQ(told.epochs.size(), 6u);
  // An epoch's mean is that of its records, which cover 4 and 2 steps.
  EXPECT_NEAR(told.epochs[0].train_loss, (4 * told.steps[0].loss + 2 * told.steps[1].loss) / 6,
              1e-12);
  EXPECT_LT(told.epochs.back().train_loss, told.epochs.front().train_loss);
  EXPECT_EQ(told.layers, (std::vector<std::int64_t>{6, 12, 18, 24, 30, 36}));
}

TEST(TrainerTest, EvaluatesAsOftenAsAskedAndAtTheEnd) {
  TrainOptions options = test::small_options("zca");
  options.epochs = 5;
  Recorder each, some;
  const Result result = train(options, test::small_data(), each);
  options.evaluate_every = 2;
  const Result sparing = train(options, test::small_data(), some);
  ASSERT_EQ(some.epochs.size(), 5u);
  for (const std::size_t epoch : {0, 2, 4}) {
    EXPECT_EQ(some.epochs[epoch].test_error, each.epochs[epoch].test_error);
    EXPECT_EQ(some.epochs[epoch].test_loss, each.epochs[epoch].test_loss);
  }
  for (const std::size_t epoch : {1, 3}) {
    EXPECT_TRUE(std::isnan(some.epochs[epoch].test_error));
    EXPECT_TRUE(std::isnan(some.epochs[epoch].test_loss));
    EXPECT_EQ(some.epochs[epoch].train_loss, each.epochs[epoch].train_loss);
  }
  EXPECT_EQ(sparing.test_error, result.test_error);  // evaluation does not affect training
  EXPECT_EQ(sparing.best_test_error,
            std::min({each.epochs[0].test_error, each.epochs[2].test_error, result.test_error}));
}

TEST(TrainerTest, TheSameSeedGivesTheSameNumbersAndAnotherOneOthers) {
  const DataSet data = test::small_data();
  TrainOptions options = test::small_options("pca");
  Recorder first, second, third;
  train(options, data, first);
  train(options, data, second);
  options.seed = 8;
  train(options, data, third);
  test::expect_same_steps(first, second, "again");
  EXPECT_NE(first.steps[0].loss, third.steps[0].loss);
}

TEST(TrainerTest, StopsAtAFailureAndSaysWhereItBegan) {
  TrainOptions options = test::small_options("zca");
  options.model.dead_channels = 2;
  options.log_every = 5;  // seen at the fifth step, begun at the first
  const test::TemporaryFolder folder;
  options.run = folder.path();
  options.checkpoint_every = 3;
  const DataSet data = test::small_data();
  Recorder healthy;
  EXPECT_EQ(train(options, data, healthy).status, "finished");
  EXPECT_TRUE(healthy.failures.empty());

  fs::remove_all(folder / "checkpoints");
  options.model.norm.rule = "analytic";
  options.model.norm.rank = "full";  // keeps the equal eigenvalues
  Recorder told;
  const Result result = train(options, data, told);
  EXPECT_EQ(result.status, "failed");
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->step, 1);
  EXPECT_EQ(result.steps, 1);
  EXPECT_GT(result.images_per_second, 0);
  EXPECT_EQ(result.failure->where, "gradient of conv1.weight");
  EXPECT_EQ(result.failure->layer, "bn1");
  EXPECT_EQ(result.failure->smallest_gap, 0);
  ASSERT_EQ(told.failures.size(), 1u);
  EXPECT_EQ(told.finishes, 1);
  EXPECT_TRUE(told.steps.empty());
  EXPECT_FALSE(fs::exists(folder / "checkpoints"));
  const auto spectrum = nlohmann::json::parse(read_file(folder / "spectrum.json"));
  EXPECT_EQ(spectrum["step"], 1);
  EXPECT_EQ(spectrum["smallest_gap"], 0.0);
  EXPECT_EQ(spectrum["layers"][0]["values"][0].size(), 4u);
  EXPECT_EQ(to_json(result)["failure"]["layer"], "bn1");
  EXPECT_TRUE(to_json(result)["test_error"].is_null());
}

TEST(TrainerTest, AFailureHoldsTheGradientsOfTheStepsBefore) {
  TrainOptions options = test::small_options("zca");
  options.schedule = "constant";
  options.learning_rate = 3e3;  // until something overflows
  options.weight_decay = 0;
  options.epochs = 100;
  const DataSet data = test::small_data();
  Recorder each, last;
  const Result known = train(options, data, each);
  ASSERT_TRUE(known.failure);
  ASSERT_GT(known.failure->step, 3);
  options.log_every = 1000;
  const Result result = train(options, data, last);
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->step, known.failure->step);
  const auto& found = result.failure->gradients;
  const auto step = std::size_t(result.failure->step);
  ASSERT_EQ(found.size(), std::min<std::size_t>(step, TrainingStep::kRecent));
  for (std::size_t i = 0; i + 1 < found.size(); ++i)
    EXPECT_EQ(found[i], each.steps[step - found.size() + i].gradient_norm_layer) << i;
  EXPECT_EQ(to_json(result)["failure"]["gradients"].size(), found.size());
}

TEST(TrainerTest, WritesCheckpointsAndTheSpectrum) {
  const test::TemporaryFolder folder;
  TrainOptions options = test::small_options("zca");
  options.run = folder / "deeper" / "run";
  options.checkpoint_every = 4;
  options.keep = 2;
  Recorder told;
  const Result result = train(options, test::small_data(), told);
  const auto newest = newest_checkpoint(options.run, {});
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->position.step, 12);
  EXPECT_EQ(newest->position.epoch, 2);
  EXPECT_EQ(newest->position.last.test_error, result.test_error);
  EXPECT_FALSE(fs::exists(options.run / "checkpoints" / "step-00000004.json"));
  EXPECT_TRUE(fs::exists(options.run / "checkpoints" / "step-00000008.json"));
  // The checkpoint has the network that was evaluated.
  const DataSet data = test::small_data();
  const Evaluation again = evaluate(load_model(*newest), data.test, data, options);
  EXPECT_EQ(again.error, result.test_error);
  EXPECT_NEAR(again.loss, result.test_loss, 1e-6);
  EXPECT_EQ(nlohmann::json::parse(read_file(options.run / "spectrum.json"))["step"], 12);
}

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * double(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

struct Scale : Observer {
  std::map<std::int64_t, double> mib;
  void on_step(const StepRecord& record) override { mib[record.step] = resident_mib(); }
};

TEST(TrainerTest, MemoryStaysFlatOverAThousandSteps) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps what is freed";
#endif
  const test::TemporaryFolder folder;
  TrainOptions options = test::small_options("zca");
  options.epochs = 200;  // of 6 steps each, evaluation and checkpoint included
  options.log_every = 6;
  options.learning_rate = 0.01;
  options.run = folder.path();
  Scale scale;
  const Result result = train(options, test::small_data(), scale);
  ASSERT_EQ(result.status, "finished");
  ASSERT_EQ(result.steps, 1200);
  // The first steps fill the allocator's pools. A leak of one step's gradients is 20 KiB per step, 20 MiB in all.
  EXPECT_LT(scale.mib.at(1200) - scale.mib.at(198), 1.5);
}

TEST(TrainerTest, NamesWhatIsWrongWithDataAndDevice) {
  TrainOptions options = test::small_options();
  Recorder told;
  const DataSet few = test::small_data(10);
  EXPECT_EQ(error_of([&] { train(options, few, told); }),
            "expected at least a batch of 16 training images, got 10");
  options.batch = 1;
  DataSet tiny = test::small_data();
  for (Images* images : {&tiny.train, &tiny.test})
    images->pixels = images->pixels.slice(2, 0, 4).slice(3, 0, 4).contiguous();
  EXPECT_EQ(error_of([&] { train(options, tiny, told); }),
            "expected at least 2 values of a channel for the norms of the last stage, got 1: 1 "
            "image of 1 x 1 there (batch, size)");
  options.batch = 16;
  DataSet wrong = test::small_data();
  wrong.train.labels[3] = 4;
  EXPECT_EQ(error_of([&] { train(options, wrong, told); }),
            "expected labels from 0 to 3, got 0 to 4");
  options.device = "cpu";
  options.precision = "tf32";
  EXPECT_EQ(error_of([&] { train(options, test::small_data(), told); }),
            "expected a CUDA device for precision tf32, got cpu; use float32, or a GPU");
  options.precision = "float32";
  if (!torch::cuda::is_available()) {
    options.device = "cuda";
    EXPECT_EQ(error_of([&] { train(options, test::small_data(), told); }),
              "expected a CUDA device, as asked for; LibTorch sees none");
  }
  EXPECT_EQ(told.starts, 0);
  options = test::small_options();
  options.batch = 2;      // the fewest that have a variance
  options.max_steps = 4;  // the end of the run, of its only epoch and of its schedule
  const Result result = train(options, tiny, told);
  EXPECT_EQ(result.status, "finished");
  EXPECT_TRUE(std::isfinite(result.test_loss));
  EXPECT_EQ(result.steps, 4);
  EXPECT_EQ(told.epochs.size(), 1u);
  EXPECT_LT(told.steps.back().learning_rate, 1e-5);
}

}  // namespace
}  // namespace keel::lab
