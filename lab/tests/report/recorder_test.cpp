#include "lab/report/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "lab/report/run_folder.h"
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
  Recorder recorder(folder / "run", [&](const std::string& text) { ADD_FAILURE() << text; });
  RunInfo info;
  info.options.seed = 7;
  recorder.on_start(info);
  recorder.on_step(step(2));
  recorder.on_epoch({.step = 2, .test_error = 0.25});
  Failure failure;
  failure.step = 3;
  recorder.on_failure(failure);
  recorder.on_finish({.status = "failed", .failure = failure});
  const auto run = read_run(folder / "run");
  EXPECT_EQ(run.result.status, "failed");
  EXPECT_EQ(run.setting("seed"), "7");
  EXPECT_EQ(run.steps.at(0).loss, 0.5);
  EXPECT_TRUE(std::isnan(run.steps[0].smallest_gap));
  EXPECT_TRUE(std::isnan(run.steps[0].rank));  // the layer has none
  EXPECT_EQ(run.epochs.at(0).test_error, 0.25);
  EXPECT_EQ(run.result.failure->step, 3);
}

std::vector<std::int64_t> steps(const std::filesystem::path& file) {
  std::vector<std::int64_t> found;
  for (const Json& record : read_metrics(file)) found.push_back(record.at("step"));
  return found;
}

TEST(Metrics, EveryLineIsThereAsSoonAsItIsWritten) {
  const TemporaryFolder folder;
  MetricsWriter writer(folder / "metrics.jsonl");
  for (int step = 1; step <= 3; ++step) {
    writer.write({{"step", step}});
    EXPECT_EQ(steps(folder / "metrics.jsonl").size(), std::size_t(step));
  }
}

TEST(Metrics, AResumedRunDropsWhatItRepeats) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  testing::write(file,
                 "{\"step\":5}\n{\"step\":10}\n{\"step\":15}\n{\"st");  // killed while writing
  MetricsWriter writer(file, /*last_step=*/10);
  writer.write({{"step", 15}});
  EXPECT_EQ(steps(file), (std::vector<std::int64_t>{5, 10, 15}));
}

TEST(Metrics, DamagedLinesAreLeftOutAndNamed) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  const std::string deep(200'000, '[');
  testing::write(file, "{\"step\":5}\nrubbish\n\n{\"step\":6}\n[1]\n" + deep +
                           "\n{\"step\":7,\"step\":8}\n{\"step\":9}\n{\"step\":");
  std::vector<std::string> said;
  std::vector<std::int64_t> found;
  for (const Json& record : read_metrics(file, [&](const auto& text) { said.push_back(text); }))
    found.push_back(record.at("step"));
  EXPECT_EQ(found, (std::vector<std::int64_t>{5, 6, 9}));
  ASSERT_EQ(said.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const int line[] = {2, 5, 6, 7};
    EXPECT_EQ(said[i].rfind(file.string() + ", line " + std::to_string(line[i]), 0), 0u) << said[i];
  }
}

TEST(Metrics, ARunGoesOnBehindDamagedLinesWithoutThem) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  testing::write(file, "{\"step\":5}\nrubbish\n{\"step\":\"7\"}\n{\"step\":11}\n");
  int said = 0;
  MetricsWriter writer(file, /*last_step=*/10, [&](const std::string&) { ++said; });
  writer.write({{"step", 11}, {"again", true}});
  EXPECT_EQ(said, 1);
  EXPECT_EQ(testing::read(file), "{\"step\":5}\n{\"step\":\"7\"}\n{\"step\":11,\"again\":true}\n");
}

TEST(Settings, EveryOptionIsThereOnceUnderAComment) {
  TrainOptions options;
  options.learning_rate = 1;
  const auto text = to_toml(options);
  for_each_field(
      options, [&](const std::string& name, About about, const auto&, const auto&, const auto&) {
        const std::regex entry("\n# [^\n]+\n(# )?" + name + " =");
        const auto found = std::distance(std::sregex_iterator(text.begin(), text.end(), entry), {});
        EXPECT_EQ(found, about == About::call ? 0 : 1) << name;
      });
  for (const char* line : {"\nlearning_rate = 1.0\n", "\n# parameter =\n"})  // left to the rule
    EXPECT_NE(text.find(line), text.npos) << line;
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
    const nlohmann::json table = parse_toml(to_toml(options), "config.toml");
    EXPECT_EQ(to_json(train_options(table)), to_json(options)) << path;
  }
}

}  // namespace
}  // namespace keel::lab::report
