// What differs on a GPU: the captured step, compared with the CPU. Skipped without a GPU.

#include <gtest/gtest.h>
#include <map>

#include "lab/tests/train/support.h"
#include "lab/train/checkpoint.h"
#include "lab/train/graph.h"
#include "lab/train/recalibrate.h"
#include "lab/train/step.h"

namespace keel::lab {
namespace {

using test::Recorder;

class CudaTrainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  }

  static TrainOptions options(const std::string& norm) {
    TrainOptions options = test::small_options(norm);
    options.epochs = 3;
    options.device = "cuda";
    options.deterministic = true;
    options.log_every = 2;
    return options;
  }
};

TEST_F(CudaTrainTest, TheCapturedStepGivesTheNumbersOfThePlainOne) {
  const DataSet data = test::small_data();
  std::vector<TrainOptions> cases;
  for (const char* norm : {"batch", "zca", "pca"})
    for (const char* precision : {"float32", "bfloat16"}) {
      cases.push_back(options(norm));
      cases.back().precision = precision;
      cases.back().channels_last = true;
    }
  cases.push_back(options("zca"));
  cases.back().model.where = "all";
  cases.back().model.norm.group_size = 4;
  for (const char* rule : {"power_method", "textbook", "newton_schulz"}) {
    cases.push_back(options("zca"));
    cases.back().model.norm.rule = rule;
    cases.back().max_steps = 8;
  }
  for (TrainOptions& captured : cases) {
    const std::string what = captured.model.norm.kind + " " + captured.model.norm.rule + " " +
                             captured.model.where + " " + captured.precision;
    TrainOptions plain = captured;
    plain.graph = false;
    Recorder one, other;
    const Result result = train(captured, data, one);
    EXPECT_TRUE(result.status == "finished" || captured.model.norm.rule != "exact") << what;
    EXPECT_GT(result.peak_mib, 0) << what;
    EXPECT_EQ(train(plain, data, other).status, result.status) << what;
    test::expect_same_steps(one, other, what);
    if (result.status == "finished") {
      EXPECT_EQ(one.epochs.back().test_loss, other.epochs.back().test_loss) << what;
    }
  }
}

TEST_F(CudaTrainTest, RecalibratingAndFollowingLeaveTheCapturedStepAlone) {
  const DataSet data = test::small_data();
  for (const char* norm : {"batch", "zca"}) {
    TrainOptions plain = options(norm);
    plain.epochs = 4;
    plain.precision = "bfloat16";
    plain.channels_last = true;
    plain.log_every = 1;
    TrainOptions both = plain;
    both.recalibrate = 6;  // some of them captured
    both.follow = "all";
    both.follow_every = 2;
    Recorder one, other, launched;
    train(plain, data, one);
    const Result result = train(both, data, other);
    EXPECT_TRUE(std::isfinite(result.recalibrated_test_error));
    both.graph = false;
    train(both, data, launched);
    // And the layer's state is the one of this step, whichever graph wrote it.
    test::expect_same_steps(one, other, norm);
    for (std::size_t i = 0; i < one.epochs.size(); ++i) {
      EXPECT_EQ(one.epochs[i].test_loss, other.epochs[i].test_loss) << norm << " " << i;
      EXPECT_EQ(other.epochs[i].recalibrated_test_loss, launched.epochs[i].recalibrated_test_loss)
          << norm << " " << i;
      // The first captured steps look once more, so the averages differ by the weight of one batch of 16 images.
      EXPECT_NEAR(other.epochs[i].followed_test_loss, launched.epochs[i].followed_test_loss,
                  0.1 * launched.epochs[i].followed_test_loss)
          << norm << " " << i;
    }
  }
}

TEST_F(CudaTrainTest, CapturedStatisticsAreThoseOfThePlainPasses) {
  const DataSet data = test::small_data();
  const torch::Device device(torch::kCUDA);
  const DeviceScope scope(device);
  for (const char* norm : {"batch", "zca", "pca"})
    for (const char* precision : {"float32", "bfloat16"})
      for (const bool augmentation : {true, false}) {
        TrainOptions captured = options(norm);
        captured.model.where = "all";
        captured.model.norm.group_size = 4;
        captured.recalibrate = Recalibrator::kPassesBeforeCapture + 2;
        captured.precision = precision;
        captured.channels_last = true;
        captured.augmentation = augmentation;
        TrainOptions plain = captured;
        plain.graph = false;
        const Precision settings(captured, device);
        torch::manual_seed(3);
        ResNet model(captured.model);
        model->to(device);
        model->train();
        const Images images = data.train.to(device);
        Recalibrator one(model, images, augment_options(data, 1), captured),
            other(model, images, augment_options(data, 1), plain);
        // The second and third passes only replay: other images, other crops, and a restarted count.
        for (const std::int64_t step : {5, 90, 5}) {
          EXPECT_EQ(other.run(step), captured.recalibrate);
          std::map<std::string, torch::Tensor> expected;
          for (const auto& buffer : model->named_buffers())
            expected[buffer.key()] = buffer.value().clone();
          one.run(step);
          EXPECT_TRUE(model->is_training());
          for (const auto& buffer : model->named_buffers())
            EXPECT_TRUE(buffer.value().equal(expected.at(buffer.key())))
                << norm << " " << precision << " " << step << " " << buffer.key();
        }
      }
}

TEST_F(CudaTrainTest, StartsAsTheCpuDoes) {
  const DataSet data = test::small_data();
  for (const char* norm : {"batch", "zca", "pca"}) {
    TrainOptions there = options(norm), here = options(norm);
    there.log_every = here.log_every = 1;
    there.max_steps = here.max_steps = 3;
    here.device = "cpu";
    Recorder one, other;
    train(there, data, one);
    train(here, data, other);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(one.steps[i].loss, other.steps[i].loss, 2e-3 * other.steps[i].loss) << norm << i;
  }
}

TEST_F(CudaTrainTest, AFailureIsFoundInACapturedStep) {
  TrainOptions bad = options("zca");
  bad.model.norm.rule = "analytic";
  bad.model.norm.rank = "full";  // keeps the equal eigenvalues
  bad.model.dead_channels = 2;
  bad.log_every = 6;
  Recorder told;
  const Result result = train(bad, test::small_data(), told);
  EXPECT_EQ(result.status, "failed");
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->layer, "bn1");
  EXPECT_EQ(result.failure->where, "gradient of conv1.weight");
  EXPECT_EQ(result.failure->smallest_gap, 0);
}

// One cannot be captured and runs as it is; the other draws its starts inside the graph.
TEST_F(CudaTrainTest, TheReleasedBaselinesRun) {
  for (const char* rule : {"released_textbook", "released_power_iteration"}) {
    TrainOptions o = options("zca");
    o.model.norm.rule = rule;
    o.max_steps = 8;
    Recorder told;
    const Result result = train(o, test::small_data(), told);
    EXPECT_TRUE(result.status == "finished" || result.failure) << rule;
    EXPECT_GT(told.steps.size(), 0u) << rule;
  }
}

TEST_F(CudaTrainTest, ResumesToTheSameBits) {
  const DataSet data = test::small_data();
  const test::TemporaryFolder whole, parts;
  TrainOptions o = options("zca");
  o.run = whole.path();
  Recorder told;
  const Result expected = train(o, data, told);
  o.run = parts.path();
  o.resume = true;
  test::Interrupter interrupter(8);
  EXPECT_EQ(train(o, data, interrupter).status, "interrupted");
  const Result result = train(o, data, told);
  EXPECT_EQ(result.status, "finished");
  EXPECT_EQ(result.test_loss, expected.test_loss);
}

}  // namespace
}  // namespace keel::lab
