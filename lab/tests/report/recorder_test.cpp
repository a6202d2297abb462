#include "lab/report/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/report/run_folder.h"
#include "lab/report/settings.h"
#include "lab/storage/toml.h"
#include "lab/tests/report/run_files.h"

namespace keel::lab::report {
namespace {

using testing::TemporaryFolder;

StepRecord step(std::int64_t number) {
  StepRecord record;
  record.step = number;
  record.loss = 1.0 / double(number);
  record.smallest_gap = std::nan("");
  return record;
}

TEST(Recorder, KnowsWhetherTheResultIsOnTheDisk) {
  const TemporaryFolder folder;
  int said = 0;
  Recorder recorder(folder / "run", [&](const std::string&) { ++said; });
  recorder.on_start({});
  EXPECT_FALSE(recorder.has_result());
  recorder.on_finish({});
  EXPECT_TRUE(recorder.has_result());
  std::filesystem::remove_all(folder / "run");
  recorder.on_finish({});
  EXPECT_FALSE(recorder.has_result());
  EXPECT_EQ(said, 1);
}

TEST(Recorder, LeavesARunFolderThatTheReportReads) {
  const TemporaryFolder folder;
  std::vector<std::string> said;
  Recorder recorder(folder / "run", [&](const std::string& text) { said.push_back(text); });
  RunInfo info;
  info.options.model.norm.kind = "zca";
  info.options.seed = 7;
  info.device = "cpu";
  recorder.on_start(info);
  recorder.on_step(step(1));
  recorder.on_step(step(2));
  EpochRecord epoch;
  epoch.step = 2;
  epoch.test_error = 0.25;
  recorder.on_epoch(epoch);
  Failure failure;
  failure.step = 3;
  failure.where = "loss";
  recorder.on_failure(failure);
  Result result;
  result.status = "failed";
  result.failure = failure;
  recorder.on_finish(result);

  EXPECT_TRUE(said.empty());
  const auto run = read_run(folder / "run");
  EXPECT_EQ(run.result.status, "failed");
  EXPECT_EQ(run.setting("norm"), "zca");
  EXPECT_EQ(run.setting("seed"), "7");
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.steps[1].loss, 0.5);
  EXPECT_TRUE(std::isnan(run.steps[1].smallest_gap));
  EXPECT_TRUE(std::isnan(run.steps[1].rank));  // 0: the layer has none
  EXPECT_EQ(run.epochs.at(0).test_error, 0.25);
  EXPECT_EQ(run.result.failure->step, 3);
}

TEST(Recorder, AResumedRunGoesOnWhereItsCheckpointWas) {
  const TemporaryFolder folder;
  const auto quiet = [](const std::string&) {};
  {
    Recorder recorder(folder.path(), quiet);
    recorder.on_start({});
    for (int i = 1; i <= 5; ++i) recorder.on_step(step(i));
  }
  RunInfo info;
  info.first_step = 3;
  Recorder recorder(folder.path(), quiet);
  recorder.on_start(info);
  recorder.on_step(step(4));
  std::vector<std::int64_t> steps;
  for (const StepRecord& metrics : read_run(folder.path()).steps) steps.push_back(metrics.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4}));
}

TEST(Settings, EveryOptionIsThereOnceUnderAComment) {
  TrainOptions options;
  options.learning_rate = 1;
  options.data.path = "/some where/x";
  const auto text = toml(options);
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto count = [&](const std::string& line) {
    return std::count(lines.begin(), lines.end(), line);
  };
  EXPECT_EQ(count("learning_rate = 1.0"), 1);
  EXPECT_EQ(count("path = \"/some where/x\""), 1);
  EXPECT_EQ(count("graph = true"), 1);
  EXPECT_EQ(count("# parameter ="), 1);  // unset: left to the rule
  EXPECT_EQ(text.find("\nrun ="), std::string::npos);
  EXPECT_EQ(text.find("\nresume ="), std::string::npos);
  for_each_field(
      options, [&](const std::string& name, About about, const auto&, const auto&, const auto&) {
        if (about == About::call) return;
        int found = 0;
        for (std::size_t i = 1; i < lines.size(); ++i)
          if (lines[i].rfind(name + " =", 0) == 0 || lines[i].rfind("# " + name + " =", 0) == 0) {
            ++found;
            EXPECT_EQ(lines[i - 1].rfind("# ", 0), 0u) << name;
          }
        EXPECT_EQ(found, 1) << name;
      });
}

// Each of these used to train but could not be resumed.
TEST(Settings, EveryOptionComesBack) {
  for (const std::string path :
       {"/data/a # b", "two\nlines", "tab\t \"quoted\" 'twice'", "C:\\new\\table", "\x01\x7f\r",
        "[a, b]", "{x}", "\xc3\xa9t\xc3\xa9", " blanks ", "true"}) {
    TrainOptions options;
    options.data.path = path;
    options.seed = 0xffffffffffffffffu;
    options.data.seed = 0x7fffffffffffffffu;
    options.learning_rate = 0.1 + 0.2;
    options.weight_decay = 1e-300;
    options.model.norm.parameter = 19;
    EXPECT_NO_THROW(validate(options));
    const nlohmann::json table = parse_toml(toml(options), "config.toml");
    EXPECT_EQ(to_json(train_options(table)), to_json(options)) << path;
  }
}

}  // namespace
}  // namespace keel::lab::report
