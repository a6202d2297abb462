// Tests the commands that read a finished run. All share one run.

#include <gtest/gtest.h>
#include <cstring>

#include "lab/tests/cli/program.h"

namespace keel::cli::testing {
namespace {

class CliCommands : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    const auto outcome = program("train" + kTiny + "--norm zca --dead-channels 2 --run " + run());
    trained_ = outcome.code == 0;
    EXPECT_TRUE(trained_) << outcome.error;
  }
  static void TearDownTestSuite() { delete folder_; }
  void SetUp() override {
    if (!trained_) GTEST_FAIL() << "no run to look at";
  }

  static std::string run() { return (*folder_ / "run").string(); }
  static std::string in(const std::string& name) { return (*folder_ / name).string(); }
  static TemporaryFolder* folder_;
  static bool trained_;
};
TemporaryFolder* CliCommands::folder_ = nullptr;
bool CliCommands::trained_ = false;

TEST_F(CliCommands, EvalRepeatsTheRunsTestError) {
  const auto outcome = keel("eval " + run() + " --json");
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result.at("images"), 20);
  // The last checkpoint has the recomputed statistics.
  EXPECT_DOUBLE_EQ(result.at("error").get<double>(),
                   json(run() + "/result.json").at("recalibrated_test_error").get<double>());
  // Other training images have other statistics, but the checkpoint's are used.
  const auto fewer = keel("eval " + run() + " --train-limit 20 --json");
  ASSERT_EQ(fewer.code, 0) << fewer.error;
  EXPECT_EQ(nlohmann::json::parse(fewer.out).at("loss"), result.at("loss"));
  const auto words = keel("eval " + run() + " --split train");
  EXPECT_TRUE(contains(words.out, "64 train images")) << words.out;
}

TEST_F(CliCommands, EvalRecalibratesWhereAsked) {
  const auto outcome = keel("eval " + run() + " --recalibrate 2 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_GT(result.at("recalibrated"), 2);  // training recalibrates by default
  EXPECT_DOUBLE_EQ(result.at("error").get<double>(),
                   json(run() + "/result.json").at("recalibrated_test_error").get<double>());
  EXPECT_NE(result.at("recalibrated_loss"), result.at("loss"));
  EXPECT_TRUE(contains(keel("eval " + run() + " --recalibrate 2").out,
                       "recomputed from 2 training batches: error"));
  EXPECT_EQ(keel("eval " + run() + " --recalibrate 0").code, 2);
  EXPECT_EQ(keel("eval " + run() + " --source cifar10").code, 2);  // and no path
  const auto other = keel("eval " + run() + "/config.toml");
  EXPECT_EQ(other.code, 3);
  EXPECT_TRUE(contains(other.error, "expected a run folder, or a checkpoint's file"))
      << other.error;
}

TEST_F(CliCommands, InspectShowsTheRunsRepeatedEigenvalues) {
  const auto outcome = keel("inspect " + run());
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  for (const char* part : {"\nn = 8, eigenvalues ", " ... 0.0001, condition ",
                           "\n1 neighbours are equal to the last bit\n",  // the two dead channels
                           "\nanalytic  ", "not finite"})
    EXPECT_TRUE(contains(outcome.out, part)) << part << outcome.out;
}

TEST_F(CliCommands, InspectReadsNpy) {
  const auto inspect = [](std::vector<double> numbers) {
    std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }";
    header.resize(53 + 64, ' ');
    header.back() = '\n';
    std::string bytes(reinterpret_cast<const char*>(numbers.data()), 4 * sizeof(double));
    write(in("m.npy"),
          std::string("\x93NUMPY\x01\x00", 8) + char(header.size()) + '\0' + header + bytes);
    return keel("inspect " + in("m.npy"));
  };
  const auto outcome = inspect({1, 0, 0, 0.85});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.out, "0.850000          19")) << outcome.out;  // the paper's K
  EXPECT_TRUE(contains(outcome.out, "power_iteration")) << outcome.out;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [numbers, what] : std::vector<std::pair<std::vector<double>, std::string>>{
           {{1, nan, nan, 1}, "NaN"}, {{1, 2, 3, 1}, "expected a symmetric matrix"}}) {
    const auto bad = inspect(numbers);
    EXPECT_EQ(bad.code, 3);
    EXPECT_TRUE(contains(bad.error, what) && contains(bad.error, in("m.npy"))) << bad.error;
  }
}

TEST_F(CliCommands, ReportPrintsATableAndWritesAPage) {
  const auto outcome = keel("report " + run() + " --title 'A & B' --out " + in("r.html"));
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.out, "ZCA, exact")) << outcome.out;
  EXPECT_TRUE(outcome.out.ends_with("\nwrote " + in("r.html") + " and " + in("r.csv") + "\n"))
      << outcome.out;
  EXPECT_TRUE(read(in("r.csv")).starts_with("layer,folder,seed,step,epoch,quantity,value\n"));
  EXPECT_TRUE(contains(read(in("r.html")), "A &amp; B"));
  EXPECT_EQ(keel("report " + in("") + " --out " + in("all.html")).code, 0);  // a folder of runs
  EXPECT_EQ(keel("report " + run() + " --out " + in("")).code, 0);           // into a folder
  EXPECT_TRUE(fs::exists(in("report.html")));
  EXPECT_EQ(keel("report " + run() + " --out " + in("new/")).code, 0);  // into a new folder
  EXPECT_TRUE(fs::exists(in("new/report.html")));
  // A table of the user's is not replaced, and a page not written in its place.
  std::ofstream(in("mine.csv")) << "layer,grade\n";
  for (const char* name : {"mine.html", "mine.csv", "other.csv"}) {
    EXPECT_EQ(keel("report " + run() + " --out " + in(name)).code, 2) << name;
    EXPECT_FALSE(fs::exists(in("mine.html")) || fs::exists(in("other.csv"))) << name;
  }
  EXPECT_EQ(read(in("mine.csv")), "layer,grade\n");
  // A run that is named twice counts once.
  const auto twice =
      keel("report " + run() + " " + run() + "/ " + in("") + " --out " + in("r.html"));
  EXPECT_EQ(twice.out, outcome.out) << twice.error;
}

TEST_F(CliCommands, DataPacksAndReadsItsOwnPack) {
  const auto packed = in("d.pack");
  const auto outcome = keel("data --train-limit 40 --test-limit 20 --pack " + packed);
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.out, "40 training and 20 test images of 32 x 32, 10 classes"))
      << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "--path " + packed + "`")) << outcome.out;
  const auto blank = keel("data --train-limit 40 --test-limit 20 --pack '" + in("a b.pack") + "'");
  EXPECT_TRUE(contains(blank.out, "--path '" + in("a b.pack") + "'`")) << blank.out;
  const auto again = keel("data --source packed --path " + packed);
  ASSERT_EQ(again.code, 0) << again.error;
  EXPECT_TRUE(contains(again.out, "40 training and 20 test images")) << again.out;
}

// Folders, class names and options may come from anyone.
TEST_F(CliCommands, NoNameReachesTheTerminalAsAnOrder) {
  const std::string evil =
      in("\x1b[31mred\x7f \xc2\x9b"
         "2J\x9b \xe2\x80\xae");
  fs::copy(run(), evil, fs::copy_options::recursive);
  for (const auto& entry : fs::directory_iterator(evil + "/checkpoints")) {
    if (entry.path().extension() != ".json") continue;
    auto about = json(entry.path());
    about["data"]["classes"][0] = "\x1b[2J";
    write(entry.path(), about.dump());
  }
  auto config = read(evil + "/config.toml");
  config.replace(config.find("rule = \"exact\""), 14, "rule = \"\\u001b[2J\"");
  write(evil + "/config.toml", config);
  const std::string quoted = "'" + evil + "'";
  for (const std::string& command :
       {"eval " + quoted, "eval " + quoted + " --json",
        "report " + quoted + " --out " + in("evil.html"), "inspect " + quoted,
        "inspect " + quoted + " --layer " + quoted, "train --resume " + quoted,
        "train --run " + quoted, "train --model " + quoted, quoted,
        "data --source packed --path " + quoted, "train --config " + quoted + "/config.toml"}) {
    const auto outcome = keel(command);
    const std::string said = outcome.out + outcome.error;
    EXPECT_NE(said, "");
    for (const char* order : {"\x1b", "\x7f", "\x9b", "\xe2\x80\xae"})
      EXPECT_FALSE(contains(said, order)) << command << "\n" << said;
  }
}

TEST(CliWhere, SeveralLayersGoThroughAllCommands) {
  const TemporaryFolder folder;
  const auto in = [&](const std::string& name) { return (folder / name).string(); };
  const auto trained =
      keel("train" + kTiny + "--norm zca --group-size 4 --where all --run " + in("run"));
  ASSERT_EQ(trained.code, 0) << trained.error;
  EXPECT_TRUE(contains(trained.error, "ZCA d=4, exact, all norms")) << trained.error;
  EXPECT_TRUE(contains(read(in("run/config.toml")), "where = \"all\""));
  EXPECT_EQ(json(in("run/spectrum.json")).at("layers").size(), 9u);

  const auto first = keel("inspect " + in("run"));
  ASSERT_EQ(first.code, 0) << first.error;
  EXPECT_TRUE(contains(first.out, "bn1's matrix at its last step, group 0 of 2")) << first.out;
  const auto last = keel("inspect " + in("run") + " --layer layer3.0.downsample.1 --group 7");
  ASSERT_EQ(last.code, 0) << last.error;
  EXPECT_TRUE(contains(last.out, "\nn = 4, ")) << last.out;
  const auto unknown = keel("inspect " + in("run") + " --layer layer9.bn1");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(contains(unknown.error, "expected --layer to be one of bn1, layer1.0.bn1,"))
      << unknown.error;
  const auto group = keel("inspect " + in("run") + " --group 2");
  EXPECT_EQ(group.code, 2);
  EXPECT_TRUE(contains(group.error, "expected --group from 0 to 1, got 2")) << group.error;

  EXPECT_EQ(keel("eval " + in("run") + " --recalibrate 2").code, 0);
  const auto report = keel("report " + in("run") + " --out " + in("r.html"));
  ASSERT_EQ(report.code, 0) << report.error;
  const std::string page = read(in("r.html"));
  for (const char* layer : {">bn1<", ">layer3.0.downsample.1<", "ZCA d=4, exact, all norms"})
    EXPECT_TRUE(contains(page, layer)) << layer;
}

// Reading may take minutes.
TEST_F(CliCommands, AFileThatCannotBeWrittenIsReportedFirst) {
  const auto outcome = keel("data --pack " + in("no/such/folder/file"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(contains(outcome.error, "cannot create " + in("no/such/folder/file")))
      << outcome.error;
}

}  // namespace
}  // namespace keel::cli::testing
