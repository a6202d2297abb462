#include "lab/reproduce/results.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lab/reproduce/run.h"
#include "lab/tests/report/run_files.h"
#include "support/errors.h"

namespace keel::lab::reproduce {
namespace {

using report::testing::read;
using report::testing::TemporaryFolder;
using report::testing::write;

Trial failed_trial() {
  Trial trial{
      .cell = "svd", .seed = 2, .result = {.status = "failed", .steps = 33, .seconds = 1.25}};
  trial.result.peak_mib = 1234.5;
  trial.result.failure = Failure{.step = 33,
                                 .where = "gradient of conv1.weight",
                                 .layer = "bn1",
                                 .smallest_gap = NAN,
                                 .what = "step 33: not finite"};
  trial.at = {20, 33};
  trial.loss = {2.3, NAN};
  trial.gradient = {0.5, INFINITY};
  trial.recalibrated_errors = {0.25};
  trial.followed_errors = {0.125};
  trial.result.recalibration_seconds = 0.5;
  return trial;
}

Recipe small_recipe() {
  Recipe one;
  one.name = "table";
  one.common = {{"batch", 128}, {"path", "here"}};
  one.schedules = {{"short", {{"epochs", 6}}}, {"paper", {{"epochs", 350}}}};
  Cell cell;
  cell.name = "svd";
  cell.train = {{"rule", "analytic"}};
  one.cells = {cell};
  return one;
}

Results small_results() {
  Results one;
  one.experiment = "table";
  one.schedule = "short";
  one.options = identity(common_options(small_recipe(), "short", Json::object()));
  one.cells = {{"svd", {{"rule", "analytic"}}}};
  one.data = Data{"shapes", 10, 100, 20};
  one.origins = {{"2026-01-01", "keel reproduce", "abc", "0.1", "2.0", "13.0", "GPU", "CPU", 4}};
  one.trials = {failed_trial()};
  return one;
}

std::string complaint(const Results& there, const Recipe& wanted, const std::string& schedule,
                      const Json& given) {
  return keel::testing::error_of([&] { require_same(there, wanted, schedule, given); });
}

TEST(Results, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const auto file = folder / "deep";
  write_results(file / "results.json", small_results());
  const Results got = read_results(file / "results.json");
  ASSERT_EQ(got.trials.size(), 1u);
  const Trial& trial = got.trials[0];
  EXPECT_EQ(to_json(trial), to_json(failed_trial()));
  EXPECT_TRUE(std::isnan(trial.result.test_error));
  EXPECT_TRUE(std::isnan(trial.result.recalibrated_test_error));
  EXPECT_TRUE(std::isnan(trial.loss[1]));
  ASSERT_TRUE(trial.result.failure);
  EXPECT_TRUE(std::isnan(trial.result.failure->smallest_gap));
  EXPECT_EQ(got.data, small_results().data);
  EXPECT_TRUE(got.origins[0].same_as(small_results().origins[0]));
  // Writing it again gives the same bytes.
  write_results(folder / "again.json", got);
  EXPECT_EQ(read(folder / "again.json"), read(file / "results.json"));
}

TEST(Results, MeasurementsToo) {
  const TemporaryFolder folder;
  Results one = small_results();
  one.trials.clear();
  one.measured = {{"rows", {{{"a", 1}}, {{"a", 2.5}}}}, {"note", "x"}};
  write_results(folder / "r.json", one);
  EXPECT_EQ(read_results(folder / "r.json").measured, one.measured) << read(folder / "r.json");
}

TEST(Results, WhatIsWrongIsSaidInWords) {
  const TemporaryFolder folder;
  const auto file = folder / "results.json";
  for (const char* text : {"[]", "{}", "7", R"({"experiment": 7})"}) {
    write(file, text);
    const std::string said = keel::testing::error_of([&] { read_results(file); });
    EXPECT_NE(said.find(file.string()), said.npos) << said;
    EXPECT_EQ(said.find("json.exception"), said.npos) << said;
  }
}

TEST(Results, OtherOptionsAreAnError) {
  EXPECT_EQ(complaint(small_results(), small_recipe(), "short", Json::object()), "no error");
  // The place of the data and the device do not make another experiment.
  EXPECT_EQ(complaint(small_results(), small_recipe(), "short",
                      {{"path", "elsewhere"}, {"device", "cuda"}}),
            "no error");
  const auto epochs = complaint(small_results(), small_recipe(), "short", {{"epochs", 12}});
  EXPECT_NE(epochs.find("made with epochs = 6, but this call asks for 12"), std::string::npos)
      << epochs;
  const auto schedule = complaint(small_results(), small_recipe(), "paper", Json::object());
  EXPECT_NE(schedule.find("schedule = \"short\""), std::string::npos) << schedule;
  Recipe other = small_recipe();
  other.cells[0].train["rule"] = "exact";
  const auto cell = complaint(small_results(), other, "short", Json::object());
  EXPECT_NE(cell.find("rule = \"analytic\" in cell svd"), std::string::npos) << cell;
  other.cells.clear();
  const auto gone = complaint(small_results(), other, "short", Json::object());
  EXPECT_NE(gone.find("have a cell 'svd'"), std::string::npos) << gone;
}

TEST(Results, OriginsAreListedOnce) {
  Results one = small_results();
  Origin same = one.origins[0], other = same;
  same.date = "2026-02-02";
  other.tree = "def";
  EXPECT_EQ(one.place(same), 0);
  EXPECT_EQ(one.place(other), 1);
  EXPECT_EQ(one.place(same), 0);
  EXPECT_EQ(one.origins.size(), 2u);
}

TEST(Results, CellsByPattern) {
  EXPECT_TRUE(matches("", "svd-d4"));
  EXPECT_TRUE(matches("bn,svd-*", "svd-d4"));
  EXPECT_TRUE(matches("svd-d?", "svd-d4"));
  EXPECT_FALSE(matches("svd-d?", "svd-d16"));
  EXPECT_FALSE(matches("svd", "svd-d4"));
}

}  // namespace
}  // namespace keel::lab::reproduce
