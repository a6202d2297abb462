#include "lab/report/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/error.h"
#include "lab/report/run_files.h"

namespace keel::lab::report {
namespace {

using testing::TemporaryFolder;

std::vector<std::int64_t> steps(const std::filesystem::path& file) {
  std::vector<std::int64_t> found;
  for (const Json& record : read_metrics(file)) found.push_back(record.at("step"));
  return found;
}

TEST(Metrics, RecordsComeBackInOrder) {
  const TemporaryFolder folder;
  {
    MetricsWriter writer(folder / "metrics.jsonl");
    writer.write({{"kind", "step"}, {"step", 1}, {"loss", 0.1}});
    writer.write({{"kind", "step"}, {"step", 2}, {"loss", std::nan("")}});
    EXPECT_TRUE(writer.healthy());
  }
  const auto records = read_metrics(folder / "metrics.jsonl");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].at("loss").get<double>(), 0.1);
  EXPECT_TRUE(records[1].at("loss").is_null());
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

TEST(Metrics, AFreshRunStartsAFreshFile) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  testing::write(file, "{\"step\":5}\n");
  MetricsWriter writer(file);
  writer.write({{"step", 1}});
  EXPECT_EQ(steps(file), (std::vector<std::int64_t>{1}));
}

TEST(Metrics, ADamagedLineIsNamed) {
  const TemporaryFolder folder;
  const auto file = folder / "metrics.jsonl";
  testing::write(file, "{\"step\":5}\nrubbish\n{\"step\":6}\n");
  try {
    read_metrics(file);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("line 2"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(file.string()), std::string::npos) << error.what();
  }
}

TEST(Metrics, AFullDiskIsNoticedAndDoesNotThrow) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  MetricsWriter writer("/dev/full");
  EXPECT_NO_THROW(writer.write({{"step", 1}}));
  EXPECT_FALSE(writer.healthy());
}

}  // namespace
}  // namespace keel::lab::report
