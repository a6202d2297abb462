#include "lab/tests/cli/program.h"

#include <gtest/gtest.h>

namespace keel::cli::testing {
namespace {

TEST(CliTrain, LeavesTheWholeRunFolder) {
  const TemporaryFolder folder;
  const auto run = folder / "run";
  const auto outcome = program("train" + kTiny + "--norm zca --run " + run.string());
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.out, run.string() + "\n");
  EXPECT_FALSE(contains(outcome.error, "\r"));  // no terminal, no bar
  for (const char* name : {"config.toml", "metrics.jsonl", "result.json", "spectrum.json"})
    EXPECT_TRUE(fs::exists(run / name)) << name;
  EXPECT_EQ(json(run / "result.json").at("status"), "finished");
  EXPECT_EQ(json(run / "result.json").at("steps"), 8);
  EXPECT_FALSE(fs::is_empty(run / "checkpoints"));
}

TEST(CliTrain, AFolderInWhichARunTrainsIsRefused) {
  const TemporaryFolder folder;
  const auto run = folder / "run", config = run / "config.toml", before = folder / "before",
             temporary = folder / "tmp";
  fs::create_directory(temporary);
  const auto again =
      "\"$keel\" train" + kTiny + "--max-steps 2 --run " + run.string() + " --overwrite ";
  const auto outcome = shell(
      "TMPDIR=" + temporary.string() + " \"$keel\" train" + kTiny + "--epochs 100000 --run " +
      run.string() + " 2>/dev/null & pid=$!\n" + wait_for_first_step(run) + "cp " +
      config.string() + " " + before.string() + "\n" + "\"$keel\" train --resume " + run.string() +
      "; echo $?\n" + again + "; echo $?\n" + "cmp " + config.string() + " " + before.string() +
      "; echo $?\n" + "kill -KILL $pid; wait $pid\n" + again + "2>/dev/null; echo $?");
  EXPECT_EQ(outcome.out, "3\n3\n0\n" + run.string() + "\n0\n") << outcome.error;
  const std::string words =
      "keel train: " + run.string() + " is in use: another process trains there now\n";
  EXPECT_EQ(outcome.error.substr(0, 2 * words.size()), words + words);
  EXPECT_TRUE(fs::is_empty(temporary));  // a killed run leaves files in its own folder alone
}

// Both would start in the same second and take the same name.
TEST(CliTrain, RunsStartedTogetherHaveFoldersOfTheirOwn) {
  const TemporaryFolder folder;
  const auto train = "\"$keel\" train" + kTiny + "--max-steps 2 2>/dev/null & ";
  const auto outcome =
      shell("cd " + folder.path().string() + "; " + train + train + train + "wait");
  int runs = 0;
  for (const auto& entry : fs::directory_iterator(folder / "runs")) {
    ++runs;
    EXPECT_EQ(json(entry.path() / "result.json").at("status"), "finished");
    EXPECT_TRUE(contains(outcome.out, "runs/" + entry.path().filename().string() + "\n"));
  }
  EXPECT_EQ(runs, 3) << outcome.out;
}

TEST(CliTrain, TheOldRunIsThereUntilTheNewOneStarts) {
  const TemporaryFolder folder;
  const auto first = "train" + kTiny + "--max-steps 2 --run " + folder.path().string(),
             train = first + " --overwrite";
  ASSERT_EQ(keel(first).code, 0);
  const auto before = snapshot(folder.path());
  const auto again = keel(first);
  EXPECT_EQ(again.code, 2);
  EXPECT_TRUE(contains(again.error, "--resume")) << again.error;
  for (const char* wrong :
       {" --source cifar10 --path /no/such/folder", " --batch 65", " --norm zca --group-size 7"}) {
    EXPECT_NE(keel(train + wrong).code, 0) << wrong;
    EXPECT_EQ(snapshot(folder.path()), before) << wrong;
  }
  ASSERT_EQ(keel(train + " --seed 3").code, 0);
  const auto after = snapshot(folder.path());
  EXPECT_EQ(after.size(), before.size());
  EXPECT_NE(after, before);
}

TEST(CliTrain, ALogOnAFullDiskEndsNoRun) {
  const TemporaryFolder folder;
  const auto train = "train" + kTiny + "--run " + (folder / "run").string() + " --overwrite";
  EXPECT_EQ(shell("\"$keel\" " + train + " 2>/dev/full").code, 0);
  EXPECT_EQ(json(folder / "run/result.json").at("status"), "finished");
  // The run is complete, but its name could not be printed.
  EXPECT_EQ(shell("\"$keel\" " + train + " >/dev/full 2>/dev/full").code, 1);
  EXPECT_EQ(json(folder / "run/result.json").at("status"), "finished");
  for (const char* other : {"--version", "train --no-such-option 2>/dev/full", "dance 2>/dev/full",
                            "data --train-limit 20 --test-limit 20"}) {
    const auto outcome = shell("\"$keel\" " + std::string(other) + " >/dev/full");
    EXPECT_TRUE(outcome.code == 1 || outcome.code == 2) << other << outcome.code;
  }
}

TEST(CliTrain, WhatIsPrintedToNowhereLandsInNoFile) {
  const TemporaryFolder folder;
  const auto run = folder / "run";
  EXPECT_EQ(shell("\"$keel\" train" + kTiny + "--run " + run.string() + " <&- >&- 2>&-").code, 0);
  for (const auto& [name, text] : snapshot(run))
    for (const char* printed : {"training images,", "finished after"})
      EXPECT_FALSE(contains(text, printed)) << name;
}

// Limits files to 20 KiB: config, records and result fit, the network does not.
TEST(CliTrain, ALastCheckpointThatIsNotOnTheDiskIsAnError) {
  const TemporaryFolder folder;
  const auto run = folder / "run", whole = folder / "whole";
  const auto full = shell("ulimit -f 20; exec \"$keel\" train" + kTiny + "--run " + run.string());
  EXPECT_EQ(full.code, 1) << full.error;
  for (const char* step : {"step 4: no checkpoint (cannot write ", "step 8: no checkpoint ("})
    EXPECT_TRUE(contains(full.error, step)) << full.error;
  EXPECT_FALSE(contains(full.error, "no spectrum.json")) << full.error;  // which is small enough
  EXPECT_TRUE(contains(full.error,
                       "keel train: the work since the last checkpoint is lost, because step 8's "
                       "could not be written (cannot write "))
      << full.error;
  EXPECT_TRUE(contains(json(run / "result.json").at("unsaved"), "step-00000008"));
  // With room on the disk it ends as if nothing had happened.
  ASSERT_EQ(keel("train" + kTiny + "--run " + whole.string()).code, 0);
  ASSERT_EQ(keel("train --resume " + run.string()).code, 0);
  const std::string last = "checkpoints/step-00000008.safetensors";
  EXPECT_EQ(read(run / last), read(whole / last));
  EXPECT_FALSE(json(run / "result.json").contains("unsaved"));
}

TEST(CliTrain, WordsAboutARunThatIsContinuedAreForItsUser) {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  ASSERT_EQ(keel("train" + kTiny + "--run " + run).code, 0);
  const auto other = keel("train --resume " + run + " --learning-rate 0.2");
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(contains(
      other.error,
      "keel train: cannot resume: the checkpoint was made with learning_rate 0.1, got 0.2\n"))
      << other.error;
  write(run + "/checkpoints/step-00000008.json", "{");
  for (const std::string command : {"train --resume ", "eval "}) {
    const auto damaged = keel(command + run);
    EXPECT_EQ(damaged.code, 0) << damaged.error;
    EXPECT_TRUE(contains(damaged.error, "skipped the damaged checkpoint of step 8 (" + run))
        << damaged.error;
    write(run + "/checkpoints/step-00000008.json", "{");
  }
}

// Thousands of threads would take minutes for this run.
TEST(CliTrain, MoreThreadsThanCoresAreNotStarted) {
  const TemporaryFolder folder;
  const auto outcome =
      program("train" + kTiny + "--threads 65536 --run " + (folder / "run").string(), "timeout 60");
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const std::string words = "keel: expected at most one thread per core, got threads = 65536; ";
  EXPECT_TRUE(contains(outcome.error, words)) << outcome.error;
  const auto again = program("eval " + (folder / "run").string() + " --threads 2000", "timeout 60");
  EXPECT_EQ(again.code, 0) << again.error;
  EXPECT_TRUE(contains(again.error, "got threads = 2000")) << again.error;
}

TEST(CliTrain, ARunThatCannotStartLeavesNoFolder) {
  const TemporaryFolder folder;
  const auto outcome =
      keel("train --source cifar10 --path /no/such/folder --run " + (folder / "run").string());
  EXPECT_EQ(outcome.code, 3) << outcome.error;
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST(CliTrain, TheResolvedConfigGivesTheSameRun) {
  const TemporaryFolder folder;
  const auto a = folder / "a", b = folder / "b";
  ASSERT_EQ(keel("train" + kTiny + "--norm pca --seed 5 --weight-decay 0 --run " + a.string()).code,
            0);
  const auto outcome =
      keel("train --config " + (a / "config.toml").string() + " --run " + b.string());
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(read(a / "config.toml"), read(b / "config.toml"));
  EXPECT_EQ(json(a / "result.json").at("test_loss"), json(b / "result.json").at("test_loss"));
}

/// These names could not be written to config.toml, so such a run could not be resumed.
TEST(CliTrain, ARunOnDataOfAnyNameCanBeResumed) {
  const TemporaryFolder folder;
  const auto pack = "'" + (folder / "a # b\ntwo \"x\" back\\slash \x01.keel").string() + "'",
             run = (folder / "run").string();
  ASSERT_EQ(keel("data --train-limit 64 --test-limit 20 --pack " + pack).code, 0);
  const auto outcome =
      keel("train" + kTiny + "--max-steps 2 --source packed --path " + pack + " --run " + run);
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto again = keel("train --resume " + run);
  EXPECT_EQ(again.code, 0) << again.error;
  EXPECT_EQ(keel("report " + run + " --out " + (folder / "page.html").string()).code, 0);
  const auto latin =
      keel("train" + kTiny + "--source packed --path caf\xe9 --run " + (folder / "other").string());
  EXPECT_EQ(latin.code, 2);
  EXPECT_TRUE(contains(latin.error, "expected path in UTF-8")) << latin.error;
  EXPECT_FALSE(fs::exists(folder / "other"));
}

TEST(CliTrain, TheCommandLineWinsOverTheConfig) {
  const TemporaryFolder folder;
  write(folder / "c.toml",
        "# a file by hand\nmodel = \"resnet_small\"  # small\nepochs = 7\ntrain-limit = 64\n"
        "test_limit = 20\nbatch = 16\naugmentation = false\ndevice = \"cpu\"\n");
  const auto run = folder / "run";
  const auto outcome = keel("train --config " + (folder / "c.toml").string() +
                            " --epochs 1 --train_limit 32 --run " + run.string());
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto config = read(run / "config.toml");
  EXPECT_TRUE(contains(config, "\nepochs = 1\n")) << config;
  EXPECT_TRUE(contains(config, "\ntrain_limit = 32\n")) << config;
  EXPECT_TRUE(contains(config, "\naugmentation = false\n")) << config;
  EXPECT_TRUE(contains(config, "\nmodel = \"resnet_small\"\n")) << config;
}

// With AVX2 only, LibTorch 1.13 has no bfloat16 convolutions. Later releases have slow ones.
TEST(CliTrain, WhereTheCpuHasNoBfloat16ItSaysSoBeforeTheFirstStep) {
  const TemporaryFolder folder;
  const auto run = folder / "run";
  const auto outcome =
      program("train" + kTiny + "--max-steps 1 --precision bfloat16 --run " + run.string(),
              "ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2");
  if (outcome.code == 0) return;
  EXPECT_EQ(outcome.code, 2) << outcome.error;
  EXPECT_TRUE(contains(outcome.error, "expected a CPU that computes in bfloat16")) << outcome.error;
  EXPECT_FALSE(fs::exists(run / "metrics.jsonl"));
}

// oneDNN 2.6 writes past a buffer here, unless it never sees the stride of a 1x1 convolution.
TEST(CliTrain, ANarrowNetworkTrainsInChannelsLastOrderWithAvx2) {
  const TemporaryFolder folder;
  const auto outcome =
      program("train" + kTiny + "--width 4 --channels-last --run " + (folder / "run").string(),
              "ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2 timeout 300");
  EXPECT_EQ(outcome.code, 0) << outcome.error;
}

// Dead filters make eigenvalues bitwise equal, and the textbook gradient divides by their difference. The same run
// under the exact rule finishes.
TEST(CliTrain, ARunThatDivergesEndsWithFourAndSaysWhere) {
  const TemporaryFolder folder;
  const auto run = folder / "run";
  const auto common =
      "train" + kTiny + "--norm zca --rank full --dead-channels 3 --run " + run.string();
  const auto outcome = keel(common + " --rule analytic");
  EXPECT_EQ(outcome.code, 4) << outcome.error;
  EXPECT_TRUE(contains(outcome.error, "failed: step 1: ")) << outcome.error;
  EXPECT_EQ(json(run / "result.json").at("status"), "failed");
  EXPECT_EQ(keel(common + " --overwrite --rule exact").code, 0);
}

}  // namespace
}  // namespace keel::cli::testing
