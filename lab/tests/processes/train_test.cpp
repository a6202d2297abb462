// Checks that a run of several processes equals the run of one process with the same batch.

#include "lab/tests/processes/drift.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

TEST_F(DriftTest, OneTwoAndThreeProcessesOfAGroupFollowOneAlone) {
  const std::string options = kSmall + "--epochs 3 ";
  measure(options);
  const auto two = folder / "two", three = folder / "three", apart = folder / "apart";
  run_alone(options + "--workers 2 --run " + two.string());
  run_alone(options + "--workers 3 --run " + three.string());
  run_alone(options + "--workers 2 --no-sync-batchnorm --run " + apart.string());
  ASSERT_EQ(truth.size(), 30u);
  EXPECT_LT(drift(losses(two)), 1);
  EXPECT_LT(drift(losses(three)), 1);
  // A part that is left out or counted twice is obvious, as are separate BatchNorm statistics.
  EXPECT_GT(drift(losses(apart)), 100);
  EXPECT_NEAR(result(two).at("test_loss").get<double>(), result(folder / "whole").at("test_loss"),
              allowed(30));
  // An image near the border between two classes may go either way.
  EXPECT_NEAR(result(two).at("test_error").get<double>(), result(folder / "whole").at("test_error"),
              1.01 / 30);

  // One process of a group.
  const auto through = start(options + "--distributed --run " + (folder / "through").string(),
                             {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_EQ(through->wait(), 0) << through->log();
  EXPECT_TRUE(contains(through->log(), "1 process over gloo")) << through->log();
  EXPECT_LT(drift(losses(folder / "through")), 1);
}

TEST_F(DriftTest, TwoProcessesFollowOneWithAllNormsUnderTest) {
  const std::string options = kSmall + "--where all --group-size 4 --epochs 2 ";
  measure(options);
  const auto two = folder / "two";
  run_alone(options + "--workers 2 --run " + two.string());
  ASSERT_EQ(truth.size(), 20u);
  EXPECT_LT(drift(losses(two)), 1);
}

TEST_F(DriftTest, ARunGoesOnWithAnotherNumberOfProcesses) {
  const std::string options = kSmall + "--epochs 2 ";
  measure(options);
  for (const auto& [first, then] : {std::pair(2, 1), std::pair(1, 2)}) {
    const auto run = folder / ("run_" + std::to_string(first));
    run_alone(options + "--checkpoint-every 5 --workers " + std::to_string(first) + " --run " +
              run.string());
    // Pretends that it was stopped after step 15.
    for (const char* end : {".json", ".safetensors"})
      ASSERT_TRUE(fs::remove(run / "checkpoints" / (std::string("step-00000020") + end)));
    const auto resumed = start("--resume " + run.string() + " --workers " + std::to_string(then));
    ASSERT_EQ(resumed->wait(), 0) << resumed->log();
    EXPECT_TRUE(contains(resumed->log(), "resuming after step 15")) << resumed->log();
    EXPECT_LT(drift(losses(run)), 1);
    EXPECT_EQ(result(run).at("steps"), 20);
  }
}

TEST_F(TrainTest, ANumberThatIsNotFiniteStopsAllAtTheSameStep) {
  const auto run = folder / "run";
  const auto all = start(
      kSmall + "--rule analytic --rank full --dead-channels 2 --workers 2 --run " + run.string());
  EXPECT_EQ(all->wait(), 4) << all->log();
  EXPECT_TRUE(contains(all->log(), "process 1 ended with code 4")) << all->log();
  EXPECT_EQ(result(run).at("failure").at("step"), 1);
  EXPECT_EQ(result(run).at("failure").at("layer"), "bn1");
}

}  // namespace
}  // namespace keel::test
