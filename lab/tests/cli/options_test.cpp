#include "lab/tests/cli/program.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <string>
#include <thread>

#include "keel/version.h"

namespace keel::cli::testing {
namespace {

TEST(CliOptions, HelpHasRangesAndDefaultsAndSaysWhereTheyComeFrom) {
  const auto help = [](const std::string& command) { return keel(command + " --help").out; };
  const auto train = help("train");
  for (const char* part : {"--learning-rate", "0.1", "--batch", "128", "1 ... 1000000000",
                           "one_cycle", "power_iteration", "--no-graph", "Network", "Data",
                           "Machine", "[synthetic]", " 1000000) [the rule's default]"})
    EXPECT_TRUE(contains(train, part)) << part << "\n" << train;
  for (const auto& [command, source] : std::vector<std::pair<std::string, std::string>>{
           {"eval", "the run's"}, {"reproduce", "the recipe's"}}) {
    const auto text = help(command);
    EXPECT_TRUE(contains(text, "training images; 0: all (0 ... 1000000000) [" + source + "]"))
        << text;
    EXPECT_TRUE(contains(text, "memory order of the activations [" + source + "]")) << text;
    EXPECT_FALSE(contains(text, "[synthetic]")) << text;
    EXPECT_FALSE(contains(text, "[off]")) << text;
  }
}

// LibTorch takes half a second to load, and these need nothing of it.
TEST(CliOptions, HelpAndVersionLoadNoLibTorch) {
  const auto libraries = shell("LD_TRACE_LOADED_OBJECTS=1 \"$keel\"");
  EXPECT_TRUE(contains(libraries.out, "libc.so")) << libraries.out;
  EXPECT_FALSE(contains(libraries.out, "torch")) << libraries.out;
  for (const auto& [words, said] : {std::pair("--help", "  inspect"),
                                    {"-h", "  report"},
                                    {"help", "  eval"},
                                    {"--version", "keel " KEEL_VERSION ", LibTorch "},
                                    {"-V", "CUDA"},
                                    {"train --help", "keel train"},
                                    {"data -h", "keel data"},
                                    {"reproduce --help", "--cells"}}) {
    const auto itself = program(words), lab = keel(words);
    EXPECT_EQ(itself.code, 0) << words;
    EXPECT_TRUE(contains(itself.out, said)) << itself.out;
    EXPECT_EQ(itself.out, lab.out) << words;
    EXPECT_EQ(itself.error, "");
  }
  for (const char* words : {"", "trian --help", "train --help --run", "--help train"})
    EXPECT_EQ(program(words).code, keel(words).code) << words;
  EXPECT_EQ(program("--help >/dev/full").code, 1);
}

TEST(CliOptions, WhatIsOddIsSaid) {
  const TemporaryFolder folder;
  for (const char* words : {"train --run ''", "report ''", "train --config ''"}) {
    const auto outcome = keel(words);
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_TRUE(contains(outcome.error, "expected a name as ")) << words << outcome.error;
  }
  const auto twice = keel("train --epochs 1 --epochs 2 --source packed --path /nowhere");
  EXPECT_TRUE(contains(twice.error, "--epochs is given 2 times; 2 is used")) << twice.error;
  fs::create_symlink("loop", folder / "loop");
  for (const auto& path : {std::string(5000, 'x'), (folder / "loop" / "run").string()})
    for (const char* words : {"train --run ", "report ", "inspect ", "eval "}) {
      const auto outcome = keel(words + path);
      EXPECT_EQ(outcome.code, 3) << words << path;
      EXPECT_FALSE(contains(outcome.error, "filesystem error")) << outcome.error;
    }
  const std::string many = std::to_string(4 * std::max(1u, std::thread::hardware_concurrency()));
  const auto threads =
      program("train" + kTiny + "--threads 0 --max-steps 1 --run " + (folder / "run").string(),
              "OMP_NUM_THREADS=" + many);
  EXPECT_TRUE(contains(threads.error, "OMP_NUM_THREADS asks for " + many + " threads"))
      << threads.error;
}

// Mistakes end with 2, inputs that cannot be used with 3. The program speaks of its options, not of its code.
TEST(CliOptions, MistakesAndUnusableInputsAreSaid) {
  struct Wrong {
    int code;
    const char *arguments, *said;
  };
  const Wrong all[] = {
      {2, "", "Usage"},
      {2, "dance", "keel: unknown command 'dance'\n"},
      {2, "train --no-such-option", "no-such-option"},
      {2, "train --batch 0",
       "keel train: --batch: expected 1 ... 1000000000, got 0\nRun with --help for more "
       "information.\n"},
      {2, "train --epochs 99999999999999999999", "expected a whole number, got"},
      {2, "train --epochs ''", "--epochs: expected a whole number, got ''"},
      {2, "train --threads 4294967296", "--threads: expected 0 ... 65536, got"},
      {2, "train --seed -1",
       "--seed: expected a whole number from 0 to 18446744073709551615, got '-1'"},
      {2, "train --momentum 1.5", "0 ... 1"},
      {2, "train --learning-rate nan", "learning-rate"},
      {2, "train --config /no/such/file", "/no/such/file"},
      {2, "train --resume /no/such/folder", "/no/such/folder"},
      {2, "train --norm zca --group-size 7",
       "keel train: expected group_size to divide the layer's 64 channels, got 7\n"},
      {2, "train --model resnet_small --norm zca --group-size 16 --where all",
       "to divide the 8 channels of bn1, got 16"},
      {2, "train --precision tf32 --device cpu",
       "keel train: expected a CUDA device for precision tf32, got cpu; use float32, or a GPU"},
      {2, "eval /no/such/run --precision tf32 --device cpu", "got cpu"},
      {2, "train --train-limit 10 --batch 16",
       "keel train: expected at least a batch of 16 training images, got 10"},
      {2, "train --source cifar10",
       "keel train: expected path, which source cifar10 needs, got none\n"},
      {2, "data --source cifar10", "keel data: expected path, which source"},
      {2, "report", "RUN is required"},
      {2, "inspect", "RUN is required"},
      {3, "eval /no/such/run",
       "keel eval: expected a run folder or a checkpoint, /no/such/run is not there\n"},
      {3, "report /no/such/run", "/no/such/run"},
      {3, "inspect /no/such/file.npy", "/no/such/file.npy"},
      {3, "data --source cifar10 --path /no/such/folder", "/no/such/folder"},
      {3, "reproduce table9 --recipes /no/such/folder", "keel reproduce: "}};
  for (const auto& [code, arguments, said] : all) {
    const auto outcome = keel(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.error;
    EXPECT_TRUE(contains(outcome.error + outcome.out, said)) << arguments << "\n" << outcome.error;
    EXPECT_FALSE(contains(outcome.error, "keel::")) << outcome.error;
  }
}

// Each of these was misread, or read differently by two readers.
TEST(CliOptions, WhatTheConfigMeansIsNotGuessed) {
  const TemporaryFolder folder;
  const auto file = (folder / "c.toml").string();
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {"\nlearning_rate = 0,5\n", "line 2: "},
           {"train_limit = 64\ntrain-limit = 32\n", "line 2: 'train_limit' is there twice"},
           {"epochs = 1\nbatch = \"16\"\n", "line 2: "},
           {"epochs = 1\nmomentum = 1.5\n", "line 2: expected momentum in [0, 1], got 1.5"},
           {"epochs = 1\n[batch]\nbatch = 3\n", "line 2: "},
           {"epochs = 1\nrun = \"x\"\n", "line 2: unknown option 'run'"},
           {"epochs = 1\npath = \"x\n", "line 2: "}}) {
    write(file, text);
    const auto outcome = keel("train --config " + file + " --run " + (folder / "run").string());
    EXPECT_EQ(outcome.code, 2) << text << outcome.error;
    EXPECT_TRUE(contains(outcome.error, file + ", " + said)) << text << outcome.error;
  }
}

}  // namespace
}  // namespace keel::cli::testing
