#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "lab/tests/cli/program.h"

namespace keel::cli::testing {
namespace {

const std::string kRecipes = "'" KEEL_SOURCE "/lab/experiments'";
/// Trials that take a second.
const std::string kTinyTrials =
    " --source synthetic --model resnet_small --train-limit 64 --test-limit 20 --size 8 --batch 16 "
    "--epochs 2 --precision float32 --no-channels-last --device cpu --threads 1 ";

std::string reproduce(const std::string& name, const fs::path& out) {
  return "reproduce " + name + " --recipes " + kRecipes + " --out " + out.string() + kTinyTrials;
}

TEST(CliReproduce, TheListSaysWhatItCosts) {
  const auto outcome = keel("reproduce --list --recipes " + kRecipes);
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  for (const char* name : {"table1", "figure1", "table2", "figure2", "table3", "table4", "table5",
                           "figure4", "timing", "gradient-error", "bounds"})
    EXPECT_TRUE(contains(outcome.out, "\n" + std::string(name)) || outcome.out.rfind(name, 0) == 0)
        << name;
  EXPECT_TRUE(contains(outcome.out, "63 trials (21 cells x 3) of 6 epochs")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "\neverywhere-parts  Which norms")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "\ntable2            Table 2: ")) << outcome.out;
}

TEST(CliReproduce, ATableIsRunCellByCellAndGoesOn) {
  const TemporaryFolder folder;
  const auto out = folder / "out";
  const auto common = reproduce("table2", out) + "--cells 'ours-d4,bn' ";
  const auto first = program(common + "--trials 1 --jobs 2");
  ASSERT_EQ(first.code, 0) << first.error;
  EXPECT_TRUE(contains(first.error, "2 trials run, 0 of them failed")) << first.error;
  auto results = json(out / "results.json");
  ASSERT_EQ(results.at("trials").size(), 2u);
  EXPECT_EQ(results.at("data").at("train"), 64);
  EXPECT_EQ(results.at("origins").size(), 1u);
  EXPECT_EQ(results.at("origins")[0].at("device"), "cpu");
  for (const auto& trial : results.at("trials")) {
    EXPECT_EQ(trial.at("status"), "finished");
    EXPECT_EQ(trial.at("steps"), 8);
    EXPECT_EQ(trial.at("seed"), 1);
    EXPECT_FALSE(trial.at("loss").empty());
    EXPECT_EQ(trial.at("test_errors").size(), 2u);
  }
  // One more trial of each cell. The first ones stay.
  const auto second = keel(common + "--trials 2");
  ASSERT_EQ(second.code, 0) << second.error;
  EXPECT_TRUE(contains(second.error, "2 trials run")) << second.error;
  const auto more = json(out / "results.json");
  ASSERT_EQ(more.at("trials").size(), 4u);
  EXPECT_EQ(more.at("trials")[0], results.at("trials")[0]);
  const auto page = read(out / "README.md");
  EXPECT_TRUE(contains(page, "| Wang et al. | d = 4 | 4.59 | 4.71 ± 0.11 | 100 % |")) << page;
  EXPECT_TRUE(contains(page, "Not run: SVD, d = 4;")) << page;
  // The same seed gives the same trial, alone or beside others.
  const auto alone = folder / "alone";
  ASSERT_EQ(keel(reproduce("table2", alone) + "--cells bn --trials 1").code, 0);
  const auto trial = json(alone / "results.json").at("trials")[0];
  for (const auto& other : more.at("trials")) {
    if (other.at("cell") == "bn" && other.at("seed") == 1) {
      EXPECT_EQ(other.at("loss"), trial.at("loss"));
    }
  }
  const auto other = keel(common + "--epochs 1");
  EXPECT_EQ(other.code, 3);
  EXPECT_TRUE(contains(other.error, "epochs = 2, but this call asks for 1")) << other.error;
  ASSERT_EQ(keel(reproduce("table2", out) + "--cells bn --trials 1 --epochs 1 --fresh").code, 0);
  EXPECT_EQ(json(out / "results.json").at("trials").at(0).at("steps"), 4);
}

// Zero filters make eigenvalues bitwise equal, so the textbook gradient divides by zero.
TEST(CliReproduce, AFailedTrialIsAResult) {
  const TemporaryFolder folder;
  const auto out = folder / "out";
  const auto outcome = keel("reproduce failures --recipes " + kRecipes + " --out " + out.string() +
                            " --cells 'all-power_method,dead-exact' --trials 1 --train-limit 64 "
                            "--test-limit 20 --batch 16 --epochs 1 --device cpu --threads 1");
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.error, "failed: step 1: ")) << outcome.error;
  EXPECT_TRUE(contains(outcome.error, "2 trials run, 1 of them failed")) << outcome.error;
  const auto results = json(out / "results.json");
  for (const auto& trial : results.at("trials")) {
    const bool method = trial.at("cell") == "all-power_method";
    EXPECT_EQ(trial.at("status"), method ? "failed" : "finished");
    if (method) {
      EXPECT_EQ(trial.at("failure").at("step"), 1);
    }
  }
  const auto page = read(out / "README.md");
  EXPECT_TRUE(contains(page, "| power_method | - | - | 0 of 1 | 1 |")) << page;
}

TEST(CliReproduce, DataThatAreNotThereEndItAtOnce) {
  const TemporaryFolder folder;
  const auto outcome =
      keel("reproduce table2 --recipes " + kRecipes + " --out " + (folder / "out").string() +
           " --cells bn --trials 1 --source packed --path /nowhere.pack");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(contains(outcome.error, "/nowhere.pack")) << outcome.error;
  EXPECT_FALSE(fs::exists(folder / "out/results.json"));
}

TEST(CliReproduce, TheBudgetEndsItAndTheNextCallGoesOn) {
  const TemporaryFolder folder;
  const auto out = folder / "out";
  const auto common = reproduce("table2", out) + "--cells 'bn,exact-d4' --trials 1 ";
  const auto stopped = keel(common + "--epochs 100000 --budget 1");
  EXPECT_EQ(stopped.code, 5) << stopped.error;
  EXPECT_EQ(snapshot(out).size(), 1u);  // the page
  const auto next = keel(common + "--epochs 1");
  EXPECT_EQ(next.code, 0) << next.error;
  EXPECT_EQ(json(out / "results.json").at("trials").size(), 2u);
}

TEST(CliReproduce, OtherDataAreRefusedBeforeTheTraining) {
  const TemporaryFolder folder;
  const auto out = folder / "out";
  const auto runs = folder / "runs";
  const auto common = reproduce("table2", out) + "--cells bn --runs " + runs.string() + " ";
  ASSERT_EQ(keel(common + "--trials 1").code, 0);
  // Pretends that the recorded trial used other data.
  auto results = json(out / "results.json");
  results["data"]["name"] = "photographs";
  write(out / "results.json", results.dump());
  const auto refused = keel(common + "--trials 2");
  EXPECT_NE(refused.code, 0);
  EXPECT_TRUE(contains(refused.error, "are from photographs")) << refused.error;
  EXPECT_FALSE(fs::exists(runs / "table2-bn-2"));
  EXPECT_EQ(json(out / "results.json").at("trials").size(), 1u);
}

TEST(CliReproduce, AFreshStartForgetsTheRunsTooButNothingElseInTheirFolders) {
  const TemporaryFolder folder;
  const auto runs = folder / "runs";
  const auto common =
      reproduce("table2", folder / "out") + "--cells bn --runs " + runs.string() + " --trials ";
  ASSERT_EQ(keel(common + "1").code, 0);
  write(runs / "table2-bn-1" / "of the first call", "");
  ASSERT_EQ(keel(common + "1 --fresh").code, 0);
  const auto records = read(runs / "table2-bn-1" / "metrics.jsonl"),
             start = std::string("\"start\"");
  EXPECT_NE(records.find(start), records.npos);
  EXPECT_EQ(records.find(start), records.rfind(start));
  EXPECT_TRUE(fs::exists(runs / "table2-bn-1" / "of the first call"));
  write(runs / "table2-bn-2" / "mine", "");
  const auto refused = keel(common + "2 --fresh");
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(contains(refused.error, "table2-bn-2 holds other files")) << refused.error;
}

TEST(CliReproduce, OneCallAtATimeWorksOnAnExperimentAndOnARun) {
  const TemporaryFolder folder;
  const auto out = folder / "out", run = folder / "runs/table2-bn-1";
  const auto common =
      reproduce("table2", out) + "--cells bn --trials 1 --runs " + (folder / "runs").string();
  for (const auto& [held, said] : {std::pair(out, "another process is working on " + out.string()),
                                   {run, "no result; the next call will try again. keel train: " +
                                             run.string() + " is in use"}}) {
    fs::create_directories(held);
    const int lock = ::open(held.c_str(), O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
    for (const char* more : {"", " --fresh"}) {
      const auto outcome = keel(common + more);
      EXPECT_NE(outcome.code, 0);
      EXPECT_TRUE(contains(outcome.error, said)) << outcome.error;
      EXPECT_FALSE(fs::exists(run / "metrics.jsonl"));
    }
    ::close(lock);
  }
  EXPECT_EQ(keel(common).code, 0);
}

TEST(CliReproduce, ATrialEndsWithTheCallThatAskedForItAndLeavesNoFilesBehind) {
  const TemporaryFolder folder;
  const auto run = folder / "runs/table2-bn-1", temporary = folder / "tmp";
  fs::create_directories(temporary);
  const auto outcome =
      shell("TMPDIR=" + temporary.string() + " \"$keel\" " + reproduce("table2", folder / "out") +
            "--cells bn --trials 1 --epochs 100000 " + "--runs " + (folder / "runs").string() +
            " & pid=$!\n" + wait_for_first_step(run) +
            "read trial rest </proc/$pid/task/$pid/children\n[ -d /proc/$trial ] || exit 2\n" +
            "kill -KILL $pid; wait $pid\n" +
            "for i in $(seq 200); do grep -qs '^State:.[^ZX]' /proc/$trial/status || exit 0; sleep "
            "0.05; done; kill $trial; exit 1");
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_TRUE(fs::is_empty(temporary));
}

TEST(CliReproduce, RunFoldersAreKeptAndGoneOnWith) {
  const TemporaryFolder folder;
  const auto runs = folder / "runs", out = folder / "out";
  const auto common =
      reproduce("table2", out) + "--cells bn --trials 1 --runs " + runs.string() + " ";
  ASSERT_EQ(keel(common).code, 0);
  const auto loss = json(out / "results.json").at("trials")[0].at("loss");
  EXPECT_TRUE(fs::exists(runs / "table2-bn-1" / "metrics.jsonl"));
  // Pretends that it was killed after its first epoch, before anything was recorded.
  fs::remove(out / "results.json");
  for (const auto& entry : fs::directory_iterator(runs / "table2-bn-1" / "checkpoints"))
    if (contains(entry.path().string(), "step-00000008")) fs::remove(entry.path());
  ASSERT_EQ(keel(common).code, 0);
  EXPECT_EQ(json(out / "results.json").at("trials")[0].at("loss"), loss);
}

TEST(CliReproduce, AFigureRunsWhatItDraws) {
  const TemporaryFolder folder;
  const auto out = folder / "figure2";
  // Other cells of the table, of more than 8 channels a group, are not asked for.
  const auto outcome = keel(reproduce("figure2", out) + "--width 8 --trials 1 --epochs 1");
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(json(folder / "table2/results.json").at("trials").size(), 6u);
  EXPECT_TRUE(fs::exists(out / "loss.svg"));
  EXPECT_TRUE(contains(read(out / "README.md"), "(loss.svg)"));
}

TEST(CliReproduce, AMeasurementIsDoneOnce) {
  const TemporaryFolder folder;
  const auto common = "reproduce table1 --recipes " + kRecipes + " --out " + folder.path().string();
  ASSERT_EQ(keel(common).code, 0);
  const auto before = read(folder / "results.json");
  const auto again = keel(common);
  EXPECT_EQ(again.code, 0);
  EXPECT_TRUE(contains(again.error, "done already")) << again.error;
  EXPECT_EQ(read(folder / "results.json"), before);
}

TEST(CliReproduce, MistakesAreSaid) {
  EXPECT_EQ(keel("reproduce --recipes " + kRecipes).code, 2);
  const auto unknown = keel("reproduce table9 --recipes " + kRecipes);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(contains(unknown.error, "expected one of table1, figure1,")) << unknown.error;
  const auto page = keel("reproduce table9 --page --recipes " + kRecipes);
  EXPECT_EQ(page.code, 2);
  EXPECT_EQ(page.error, unknown.error);
  const auto cells = keel(reproduce("table2", "/tmp") + "--cells 'none-*'");
  EXPECT_EQ(cells.code, 2);
  EXPECT_TRUE(contains(cells.error, "no cell of table2 fits 'none-*'")) << cells.error;
  const auto size = keel(reproduce("table2", "/tmp") + "--width 6");
  EXPECT_EQ(size.code, 2);
  EXPECT_TRUE(contains(size.error, "expected group_size to divide the layer's 6 channels"))
      << size.error;
  EXPECT_EQ(keel(reproduce("table2", "/tmp") + "--precision tf32").code, 2);
  EXPECT_EQ(keel("reproduce failures --schedule paper --recipes " + kRecipes).code, 2);
  EXPECT_EQ(keel("reproduce --list --recipes /nowhere").code, 3);
}

}  // namespace
}  // namespace keel::cli::testing
