#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "lab/tests/train/support.h"
#include "lab/train/checkpoint.h"
#include "lab/train/trainer.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::Interrupter;
using test::Recorder;

std::string final_tensors(const fs::path& run, std::int64_t step) {
  char name[64];
  std::snprintf(name, sizeof name, "step-%08lld.safetensors", static_cast<long long>(step));
  return read_file(run / "checkpoints" / name);
}

TEST(ResumeTest, AnInterruptedRunGoesOnToTheSameBitsAndTheSameRecords) {
  const DataSet data = test::small_data();
  for (const auto& [norm, where] :
       {std::pair("batch", "first"), {"zca", "first"}, {"zca", "all"}}) {
    const test::TemporaryFolder whole, parts;
    TrainOptions options = test::small_options(norm);
    options.model.where = where;
    options.model.norm.group_size = 4;
    options.epochs = 3;
    options.log_every = 4;
    options.recalibrate = 3;
    options.follow = "all";
    options.follow_every = 4;
    options.run = whole.path();
    Recorder undisturbed;
    const Result expected = train(options, data, undisturbed);

    // Within an epoch, at its end (step 12), and by either signal.
    options.run = parts.path();
    options.resume = true;
    Recorder all;
    Result result;
    for (const auto& [at, signal] : {std::pair(4, SIGTERM), {8, SIGINT}, {12, SIGTERM}, {99, 0}}) {
      Interrupter told(at, signal);
      result = train(options, data, told);
      EXPECT_EQ(result.status, at < 99 ? "interrupted" : "finished");
      if (at < 99) {
        EXPECT_EQ(result.steps, at);
      }
      EXPECT_EQ(told.info.first_step, all.steps.empty() ? 0 : all.steps.back().step);
      all.steps.insert(all.steps.end(), told.steps.begin(), told.steps.end());
      all.epochs.insert(all.epochs.end(), told.epochs.begin(), told.epochs.end());
    }
    EXPECT_EQ(final_tensors(parts.path(), 18), final_tensors(whole.path(), 18)) << norm;
    EXPECT_EQ(result.test_error, expected.test_error);
    EXPECT_EQ(result.best_test_error, expected.best_test_error);
    test::expect_same_steps(all, undisturbed, norm);
    ASSERT_EQ(all.epochs.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(all.epochs[i].train_loss, undisturbed.epochs[i].train_loss);
      EXPECT_EQ(all.epochs[i].test_loss, undisturbed.epochs[i].test_loss);
      EXPECT_EQ(all.epochs[i].recalibrated_test_loss, undisturbed.epochs[i].recalibrated_test_loss);
      EXPECT_EQ(all.epochs[i].followed_test_loss, undisturbed.epochs[i].followed_test_loss);
    }

    // Resuming a finished run does nothing.
    Recorder again;
    const Result same = train(options, data, again);
    EXPECT_EQ(same.status, "finished");
    EXPECT_EQ(same.test_error, expected.test_error);
    EXPECT_EQ(same.recalibrated_test_error, expected.recalibrated_test_error);
    EXPECT_EQ(same.followed_test_error, expected.followed_test_error);
    EXPECT_TRUE(again.steps.empty());
    EXPECT_EQ(undisturbed.layers.size(), 3 * tested_sites(options.model).size());
    const auto spectrum = nlohmann::json::parse(read_file(parts / "spectrum.json"));
    EXPECT_EQ(spectrum["layers"].size(), tested_sites(options.model).size());
    options.model.where = "bn1,layer1.0.bn2";
    EXPECT_THROW(train(options, data, again), OtherOptions);
  }
}

TEST(ResumeTest, ASignalWithoutARunFolderEndsTheRunAsWell) {
  Interrupter told(3, SIGTERM);
  const Result result = train(test::small_options(), test::small_data(), told);
  EXPECT_EQ(result.status, "interrupted");
  EXPECT_EQ(result.steps, 3);
}

TEST(ResumeTest, HandlersAreThereOnlyWhileTraining) {
  const auto mine = [](int) {};
  std::signal(SIGTERM, mine);
  Recorder told;
  train(test::small_options(), test::small_data(), told);
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), +mine);
}

TEST(ResumeTest, WithoutACheckpointItStartsAfreshAndSaysSo) {
  const test::TemporaryFolder folder;
  TrainOptions options = test::small_options();
  options.run = folder / "new";
  options.resume = true;
  Recorder told;
  EXPECT_EQ(train(options, test::small_data(), told).status, "finished");
  ASSERT_EQ(told.messages.size(), 1u);
  EXPECT_NE(told.messages[0].find("starting afresh"), std::string::npos);
}

TEST(ResumeTest, RefusesOtherOptionsAndOtherData) {
  const test::TemporaryFolder folder;
  TrainOptions options = test::small_options();
  options.run = folder.path();
  Recorder told;
  train(options, test::small_data(), told);
  options.resume = true;
  options.learning_rate = 0.2;
  EXPECT_EQ(error_of([&] { train(options, test::small_data(), told); }),
            "cannot resume: the checkpoint was made with learning_rate 0.1, got 0.2");
  options.learning_rate = 0.1;
  DataSet other = test::small_data();
  other.name = "other";
  EXPECT_NE(error_of([&] { train(options, other, told); }), "no error");
  // The same name and classes, but half the images: every step of the run would be different.
  EXPECT_NE(error_of([&] {
              train(options, test::small_data(48), told);
            }).find("these data make 3 batches an epoch"),
            std::string::npos);
}

TEST(ResumeTest, RefusesAPositionBeyondTheRun) {
  const test::TemporaryFolder folder;
  TrainOptions options = test::small_options();
  options.run = folder.path();
  Recorder told;
  train(options, test::small_data(), told);
  const fs::path file = folder / "checkpoints" / "step-00000012.json";
  auto about = nlohmann::json::parse(read_file(file));
  options.resume = true;
  // Two epochs of six batches. These positions are consistent, but beyond the end or with a batch that no epoch has.
  for (const auto& [step, epoch, batch] : {std::tuple(600, 100, 0), {12, 1, 6}, {13, 2, 1}}) {
    about["position"].update({{"step", step}, {"epoch", epoch}, {"batch", batch}});
    write_file_atomically(file, about.dump());
    EXPECT_NE(error_of([&] {
                train(options, test::small_data(), told);
              }).find("these data make 6 batches an epoch and 12 steps in all"),
              std::string::npos)
        << step;
  }
}

}  // namespace
}  // namespace keel::lab
