#include "lab/report/run_folder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lab/tests/report/run_files.h"

namespace keel::lab::report {
namespace {

using testing::TemporaryFolder;

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

TEST(Metrics, AFullDiskIsNoticedAndDoesNotThrow) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  MetricsWriter writer("/dev/full");
  EXPECT_NO_THROW(writer.write({{"step", 1}}));
  EXPECT_NE(writer.error(), 0);
}

}  // namespace
}  // namespace keel::lab::report
