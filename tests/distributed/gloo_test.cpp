// Starts the processes of gloo_rank.cpp and waits for them, with a limit.

#include <gtest/gtest.h>
#include <memory>

#include "support/program.h"

namespace keel::test {
namespace {

class Ranks {
 public:
  void start(int size, const std::string& test) {
    for (int rank = 0; rank < size; ++rank)
      ranks_.push_back(std::make_unique<Program>(
          std::vector<std::string>{KEEL_GLOO_RANK, "--gtest_filter=" + test},
          Program::Environment{{"KEEL_RANK", std::to_string(rank)},
                               {"KEEL_SIZE", std::to_string(size)},
                               {"KEEL_STORE", (folder_ / "store").string()},
                               {"OMP_NUM_THREADS", "1"}},
          folder_ / ("log_" + std::to_string(rank))));
  }

  /// Whether this rank ended successfully before the deadline.
  ::testing::AssertionResult ends_well(std::size_t rank, Clock::duration limit) {
    Program& one = *ranks_.at(rank);
    const int code = one.wait(limit);
    // Without the second condition a renamed test would pass.
    if (code == 0 && one.log().find("[  PASSED  ] 1 test") != std::string::npos)
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << "rank " << rank << (code == Program::kRunning ? " hangs" : " failed") << ":\n"
           << one.log();
  }

  std::size_t count() const { return ranks_.size(); }

 private:
  testing::TemporaryFolder folder_;
  std::vector<std::unique_ptr<Program>> ranks_;
};

void expect_all_well(int size, const std::string& test) {
  Ranks ranks;
  ranks.start(size, test);
  for (std::size_t rank = 0; rank < ranks.count(); ++rank) EXPECT_TRUE(ranks.ends_well(rank, 300s));
}

TEST(Gloo, TwoProcessesEqualOne) { expect_all_well(2, "Ranks.EqualOneProcess"); }
TEST(Gloo, ThreeProcessesEqualOne) { expect_all_well(3, "Ranks.EqualOneProcess"); }
TEST(Gloo, TwoProcessesHoldTheSameStatistics) {
  expect_all_well(2, "Ranks.HoldTheSameStatisticsToTheLastBit");
}
TEST(Gloo, ThreeProcessesHoldTheSameStatistics) {
  expect_all_well(3, "Ranks.HoldTheSameStatisticsToTheLastBit");
}
TEST(Gloo, ProcessesAreCounted) { expect_all_well(2, "Ranks.AreCountedByTheLayers"); }
TEST(Gloo, OneProcessIsAGroupToo) { expect_all_well(1, "Ranks.EqualOneProcess"); }

// The group's timeout is 5 s. This only checks that there is an end.
TEST(Gloo, ADeadRankIsAnErrorOnTheOthers) {
  Ranks ranks;
  ranks.start(2, "Faults.ADeadRankIsAnError");
  EXPECT_TRUE(ranks.ends_well(0, 90s));
}
TEST(Gloo, AHangingRankIsAnErrorOnTheOthers) {
  Ranks ranks;
  ranks.start(2, "Faults.AHangingRankIsAnError");
  EXPECT_TRUE(ranks.ends_well(0, 90s));
}

}  // namespace
}  // namespace keel::test
