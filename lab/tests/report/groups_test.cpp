#include "lab/report/groups.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lab/report/charts.h"
#include "lab/report/page.h"
#include "lab/tests/report/run_files.h"
#include "support/errors.h"

namespace keel::lab::report {
namespace {

using testing::settings;
using testing::TemporaryFolder;

std::vector<Run> example_runs(const TemporaryFolder& folder) {
  testing::write_run(folder / "a", settings("batch", "exact", 0), "0.20");
  testing::write_run(folder / "b", settings("zca", "power_iteration", 0), "0.10");
  testing::write_run(folder / "c", settings("zca", "power_iteration", 1), "0.14");
  testing::write_failed_run(folder / "d", settings("zca", "analytic", 0), 3);
  std::vector<Run> runs;
  for (const char* name : {"a", "b", "c", "d"}) runs.push_back(read_run(folder / name));
  return runs;
}

TEST(Groups, SeedsOfTwoMachinesAreOneGroup) {
  const TemporaryFolder folder;
  const auto elsewhere = "path = \"/other\"\ndevice = \"cuda\"\nrecalibrate = 0\n";
  testing::write_run(folder / "a", settings("zca", "exact", 0), "0.2");
  testing::write_run(folder / "b", elsewhere + settings("zca", "exact", 1), "0.3");
  testing::write_run(folder / "c", "train_limit = 7\n" + settings("zca", "exact", 2), "0.4");
  const auto groups =
      grouped({read_run(folder / "a"), read_run(folder / "b"), read_run(folder / "c")});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].runs.size(), 2u);
}

TEST(RunFolder, ARunThatIsStillGoingIsUnfinished) {
  const TemporaryFolder folder;
  testing::write_run(folder / "a", settings("batch", "exact", 0), "0.3");
  std::filesystem::remove(folder / "a" / "result.json");
  const auto run = read_run(folder / "a");
  EXPECT_EQ(run.result.status, "unfinished");
  EXPECT_EQ(run.result.test_error, 0.3);
}

TEST(RunFolder, HoldsTheSpectraOfItsLayers) {
  const TemporaryFolder folder;
  testing::write_run(folder / "a", settings("zca", "exact", 0), "0.3");
  const auto spectra = [&](const std::string& layers) {
    testing::write(folder / "a" / "spectrum.json", R"({"step":2,"layers":)" + layers + "}");
    return read_run(folder / "a").spectra;
  };
  const auto found = spectra(
      R"([{"name":"bn1","values":[[2,1],[3,0.5]],"covariance":[[[2,0],[0,1]],[[3,0],[0,null]]]},)"
      R"({"name":"layer1.0.bn1","values":[[3,1],[4,1]],"covariance":null},)"
      R"({"name":"layer1.0.bn2","values":null}])");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "bn1");
  EXPECT_EQ(found[0].groups[1].values, (std::vector<double>{3, 0.5}));
  EXPECT_TRUE(std::isnan(found[0].groups[1].covariance[1][1]));
  EXPECT_EQ(found[1].name, "layer1.0.bn1");
  EXPECT_TRUE(found[1].groups[1].covariance.empty());
  for (const char* none : {"null", R"([{"values":null,"covariance":null}])"})
    EXPECT_TRUE(spectra(none).empty()) << none;
  for (const char* odd : {"[3]", "[[]]", R"([{"values":[[2,1]],"covariance":[[[2,0],[0]]]}])"})
    EXPECT_THROW(spectra(odd), Error) << odd;
}

TEST(RunFolder, AnotherFolderIsNamed) {
  const TemporaryFolder folder;
  EXPECT_TRUE(keel::testing::refuses({"nothing"}, [&] { read_run(folder / "nothing"); }));
}

TEST(Groups, TheLabelSaysWhereTheLayerIs) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& norm,
                         const std::string& where) {
    testing::write_run(folder / name, settings(norm, "exact", 0) + "where = \"" + where + "\"\n",
                       "0.1");
    return read_run(folder / name);
  };
  const auto groups = grouped({write("a", "zca", "first"), write("b", "zca", "all"),
                               write("c", "zca", "bn1,layer1.0.bn2"), write("d", "batch", "first"),
                               write("e", "batch", "all")});
  ASSERT_EQ(groups.size(), 5u);
  EXPECT_EQ(groups[0].label, "ZCA, exact");
  EXPECT_EQ(groups[1].label, "ZCA, exact, all norms");
  EXPECT_EQ(groups[2].label, "ZCA, exact, at bn1,layer1.0.bn2");
  EXPECT_EQ(groups[3].label, "BatchNorm, where first");
  EXPECT_EQ(groups[4].label, "BatchNorm, where all");
}

TEST(Groups, RunsThatDifferInTheirSeedAloneAreOne) {
  const TemporaryFolder folder;
  const auto groups = grouped(example_runs(folder));
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].label, "BatchNorm");
  EXPECT_EQ(groups[1].label, "ZCA, power iteration");
  EXPECT_EQ(groups[1].runs.size(), 2u);
  EXPECT_EQ(groups[2].failures(), 1);
  EXPECT_EQ(differing_settings(groups), (std::vector<std::string>{"norm", "rule"}));
}

TEST(Groups, LabelsSayWhatElseDiffers) {
  const TemporaryFolder folder;
  testing::write_run(folder / "a", settings("zca", "exact", 0) + "learning_rate = 0.1\n", "0.2");
  testing::write_run(folder / "b", settings("zca", "exact", 0) + "learning_rate = 0.5\n", "0.2");
  const auto groups = grouped({read_run(folder / "a"), read_run(folder / "b")});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].label, "ZCA, exact, learning rate 0.1");
  EXPECT_EQ(groups[1].label, "ZCA, exact, learning rate 0.5");
}

TEST(Groups, TheSpreadIsASamples) {
  const Spread s = spread({0.10, 0.14, std::nan("")});
  EXPECT_EQ(s.count, 2);
  EXPECT_DOUBLE_EQ(s.mean, 0.12);
  EXPECT_NEAR(s.deviation, 0.02 * std::sqrt(2.0), 1e-15);
  EXPECT_EQ(s.least, 0.10);
  EXPECT_EQ(s.most, 0.14);
  EXPECT_TRUE(std::isnan(spread({0.5}).deviation));
  EXPECT_EQ(spread({}).count, 0);
}

TEST(Charts, HaveALineForEachSeedOverTheEpochsThatWereEvaluated) {
  Group group{"two", {{}, {}}};
  for (int epoch = 0; epoch < 4; ++epoch)
    for (auto& run : group.runs)
      run.epochs.push_back({.epoch = epoch, .test_error = epoch % 2 ? 0.1 * epoch : kNotDone});
  // A damaged file may have any number. Incrementing one past its type would be undefined behaviour.
  group.runs[1].epochs[3].epoch = std::numeric_limits<std::int64_t>::max();
  const Charts charts = curve_charts({group});
  ASSERT_EQ(charts[0].first, "Test error");
  const auto& curves = charts[0].second.curves;
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[0].x, (std::vector<double>{2, 4}));
  EXPECT_EQ(curves[0].y, (std::vector<double>{0.1 * 1, 0.1 * 3}));
  EXPECT_EQ(curves[1].x, (std::vector<double>{2, 0x1p63}));
}

TEST(Charts, LongCurvesAreThinnedByAveraging) {
  Group group{"long", {{}}};
  for (int step = 1; step <= 1600; ++step)
    group.runs[0].steps.push_back({.step = step, .loss = double(step % 2)});
  group.runs[0].result.failure.emplace().step = 1600;
  const Charts charts = curve_charts({group});
  ASSERT_EQ(charts[0].first, "Training loss");
  const Curve& loss = charts[0].second.curves.at(0);
  ASSERT_EQ(loss.y.size(), 160u);
  for (const double y : loss.y) EXPECT_DOUBLE_EQ(y, 0.5);
  EXPECT_EQ(loss.x.back(), 1600);
  EXPECT_EQ(loss.failed_at, 1600);
}

TEST(Table, SaysWhatCountsAndLinesUp) {
  const TemporaryFolder folder;
  auto runs = example_runs(folder);
  EXPECT_EQ(
      results_table(grouped(runs)).aligned(),
      "layer                 runs      test error     best     failed  images/s  time a run\n"
      "------------------------------------------------------------------------------------\n"
      "BatchNorm                1         20.00 %  20.00 %         no      1000       5.0 s\n"
      "ZCA, power iteration     2  12.00 ± 2.83 %  10.00 %         no      1000       5.0 s\n"
      "ZCA, analytic            1               -        -  at step 3         -           -\n");
  testing::write_run(folder / "e", settings("batch", "exact", 1), "0.20", "0.18");
  testing::write_run(folder / "f", settings("zca", "exact", 0), "0.30", "0.09");
  testing::write_run(folder / "g", settings("zca", "exact", 1), "0.30", "0.13");
  for (const char* name : {"e", "f", "g"}) runs.push_back(read_run(folder / name));
  const auto text = results_table(grouped(runs)).aligned();
  for (const char* part : {"18.00 % (1 of 2)", "30.00 ± 0.00 %    11.00 ± 2.83 %"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Table, SetsItsCellsByTheirNames) {
  Table table({"a", "b"}, 2);
  table.set({"x", "1"}, "new", "<");
  table.add({"y", "2", "|"});
  EXPECT_EQ(table.markdown(), "| a | b | new |\n|---|---|--:|\n| x | 1 | < |\n| y | 2 | | |\n");
  EXPECT_NE(table.html().find("<td>1</td><td class='n'>&lt;</td>"), std::string::npos);
}

}  // namespace
}  // namespace keel::lab::report
